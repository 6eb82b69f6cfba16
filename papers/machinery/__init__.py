"""Every table and figure of the papers, measured anew: the machinery that they share.

``job`` is one measurement that takes time, known by what was asked; ``store`` keeps what came of
it; ``runner`` does what is missing; ``artifact`` is one table or figure: its jobs, and how
results become rows, verdicts and pictures; ``present`` writes them. The tables and figures
themselves are a file each, in a folder for each paper (``papers.li2024``,
``nie2023``, ``draganov2024``, ``manna2023``), found by their place; what a job does is in
``papers.measurements``.
"""
