"""Code shared by all tables and figures of the papers: jobs, their results, verdicts and pages.

``job`` is one training or measurement, identified by its settings; ``recipes`` makes
the jobs that several papers share; ``data_registry`` resolves names of data and encoders to
files; ``runner`` runs the jobs that have no result yet; ``store`` keeps the results; ``artifact``
is one table or figure: its jobs, and the function that renders their results; ``rows`` renders
those that artifacts.toml describes; ``logged`` reads numbers from results; ``verdicts``, ``rule``
and ``claims`` decide whether the numbers support a claim; ``pages`` writes text, CSV, Markdown and
pictures.
"""
