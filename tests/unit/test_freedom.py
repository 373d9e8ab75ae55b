"""How many constants runs determine."""

from __future__ import annotations

from foretell.oracle.predict import predict
from foretell.validation import published
from foretell.validation.evaluate import compare
from foretell.validation.freedom import effective_freedom
from foretell.validation.left_out import prepared
from foretell.validation.study import read


def test_runs_determine_no_more_constants_than_they_feel_and_more_runs_more():
    study = read(published.FOLDER / "vtrain_single.csv")
    compared = [("vtrain", one) for one in compare(study.rows[::45], predict)]
    few, all_of = (effective_freedom(prepared(some)) for some in (compared[:2], compared))
    assert 0 < few.effective < all_of.effective < all_of.felt < all_of.constants
    assert few.effective <= few.runs == 2
