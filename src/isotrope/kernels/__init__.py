"""Floor 1: the row statistics of the similarity matrix, behind one interface with several backends.

``pairs`` says what an objective may ask, ``eager`` answers from the whole matrix and is the truth,
``choose`` picks the backend and can say why. A further backend is a further file and a line in
``choose``; no objective notices.
"""
