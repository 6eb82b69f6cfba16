"""What all tables and figures of the papers share, from a job to a written page.

``job`` is one training or measurement, identified by its settings; ``recipes`` and ``small_images``
make the jobs that several papers share; ``data_registry`` turns names of data and encoders into
files; ``runner`` runs the jobs that have no result yet; ``store`` keeps the results; ``artifact``
is one table or figure: its jobs, and the function that renders their results; ``logged`` and
``over_seeds`` read numbers out of results; ``verdicts``, ``rule`` and ``claims`` decide what the
numbers say of a claim; ``pages`` writes text, CSV, Markdown and pictures.
"""
