"""Words for settings and folders in messages."""

from isotrope.core.spelling import with_folder


def test_the_folder_of_a_run_is_put_into_advice_but_not_into_paths() -> None:
    advice = "`isotrope evaluate --compare RUN RUN/rejected --corpus 'BRUNO data/TRUNK.tsv'`"
    folder = r"'C:\my 1 run'"
    assert with_folder(advice, folder) == (
        rf"`isotrope evaluate --compare {folder} {folder}/rejected --corpus 'BRUNO data/TRUNK.tsv'`"
    )
