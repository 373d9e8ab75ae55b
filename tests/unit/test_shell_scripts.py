"""Scripts as people write them: what the shell would make of them, and what only a running shell knows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from foretell.dialects import Launch, open_configuration, put_together
from foretell.dialects._shell import read
from foretell.dialects.shell.statements import parse
from foretell.dialects.shell.sums import computed
from foretell.errors import BadInput

TRAIN = "torchrun --nproc_per_node 8 pretrain_gpt.py --micro-batch-size 1 --global-batch-size 64 --bf16"


def options(text: str, folder: Path | None = None) -> dict[str, Any]:
    found = read(text, folder=folder)
    return {key: value for key, value in found.items() if key != "()"}


def opened(folder: Path, text: str, name: str = "run.sh") -> Any:
    (folder / name).write_text(text)
    return open_configuration(str(folder / name))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("x=4\nif [ $x -gt 2 ]; then A='--a 1'; else A='--a 2'; fi\nt.py $A", {"a": 1}),
        ("M=big\nif [[ $M == small ]]; then N=1\nelif [[ $M == b* ]]; then N=2\nelse N=3; fi\nt.py --n $N", {"n": 2}),
        ('D=fp8\nL=()\nif [[ "$D" == "fp8" ]]; then L+=("--f hybrid" "--g"); fi\nt.py ${L[@]}',
         {"f": "hybrid", "g": True}),
        ("case ${S:-70b} in\n 7b|8b) T=1;;\n 70b) T=8;;\n *) exit 1;;\nesac\nt.py --t $T", {"t": 8}),
        ("[ 1 = 2 ] && A=--x || A=--y\nt.py $A", {"y": True}),
        ("while [ $# -gt 0 ]; do case $1 in --tp) TP=$2; shift;; esac; done\nTP=${TP:-2}\nt.py --tp $TP", {"tp": 2}),
        ("OUT=$1\nif [ \"$OUT\" == \"\" ]; then OUT=here; fi\nt.py --out $OUT", {"out": "here"}),
        ("f() { local tp=$1; t.py --tp $tp; }\nf 4", {"tp": 4}),
        ("for one in 1 2; do X=$one; done\nt.py --x $X", {"x": 2}),
        ("A=(--a 1 # first\n  # --b 2\n  --c 3)\nt.py \"${A[@]}\"", {"a": 1, "c": 3}),
        ("CMD=\"t.py --a 1 \\\n --b 2\"\necho $CMD\neval $CMD", {"a": 1, "b": 2}),
        ("C=\"cd x; python t.py --a 1\"\nsrun -l --mpi=pmix bash -c \"${C}\"", {"a": 1}),
        ("sbatch <<EOF\n#SBATCH --nodes=4\nsrun t.py --a \\${B:-7}\nEOF", {"a": 7, "sbatch.nodes": 4}),
        ("P=a/b.tar.gz\nt.py --x ${P##*/} --y ${P%.gz} --z ${P/b/c} --n ${#P}",
         {"x": "b.tar.gz", "y": "a/b.tar", "z": "a/c.tar.gz", "n": 10}),
        ("N=2; G=8\nt.py --w $((N * (G + 2) % 7)) --v $(( N > 1 ? 5 : 6 )) --u=$(( 7 / 2 ))", {"w": 6, "v": 5, "u": 3}),
        ("t.py --a 'x y' --b \"q $HOME_OF_NOBODY\" --c a\\ b", {"a": "x y", "b": "q $HOME_OF_NOBODY", "c": "a b"}),
        ("declare -a L=(1 2)\nL[1]=5\nt.py --l ${L[@]} --first ${L[0]}", {"l": [1, 5], "first": 1}),
        ("(( 3 > 2 )) && t.py --a 1 &> log.txt || exit 1", {"a": 1}),
    ],
)  # fmt: skip
def test_what_a_shell_makes_of_it(text: str, found: dict[str, Any]) -> None:
    assert options(text) == found


def test_both_ways_of_a_condition_that_nobody_knows() -> None:
    text = "if [ -f there ]; then TP=2; LOG=a; else TP=4; LOG=b; fi\nt.py --tp $TP --bf16\n"
    found = options(text)
    assert found["tp"] == "2 or 4, by `[ -f there ]` in line 1"
    assert found["bf16"] is True
    stopped = options("if [ ! -f t.py ]; then echo none; exit 1; fi\nt.py --tp 2\n")
    assert stopped == {"tp": 2}
    perhaps = options('E=()\nif [ -n "${KEY_OF_NOBODY}" ]; then E+=(--key x); fi\nt.py --tp 2 ${E[@]}')
    assert perhaps["tp"] == 2
    assert perhaps["key"].startswith("x or not given")


def test_an_undecided_degree_is_refused_and_an_undecided_log_is_not(tmp_path: Path) -> None:
    text = (
        f"if [ -d /data ]; then A='--log-interval 5'; B=2; else A=; B=4; fi\n{TRAIN} $A --tensor-model-parallel-size "
    )
    found = opened(tmp_path, f"{text}2")
    assert str(put_together(found.recipe(Launch()))) == "dp4 tp2 +m16 +bf16 +no-overlap"
    with pytest.raises(BadInput, match=r"tensor-model-parallel-size is 2 or 4, by `\[ -d /data \]` in line 1"):
        opened(tmp_path, f"{text}$B").recipe(Launch())


def test_two_trainings_in_one_script(tmp_path: Path) -> None:
    text = "for tp in 2 4; do torchrun pretrain_gpt.py --tensor-model-parallel-size $tp --micro-batch-size 1; done"
    with pytest.raises(BadInput, match="2 commands train, with --tensor-model-parallel-size 2, 4"):
        opened(tmp_path, text)


def test_files_beside_a_script(tmp_path: Path) -> None:
    (tmp_path / "sizes.sh").write_text('TP=4\nexport MORE="--sequence-parallel"\n')
    (tmp_path / "job.sh").write_text("srun python pretrain_gpt.py --a 1 --tp $TP $MORE\n")
    text = "source $(dirname $0)/sizes.sh\n. ./gone.sh\nsbatch --nodes=2 --ntasks-per-node 8 job.sh\n"
    found = read(text, folder=tmp_path)
    assert found["tp"] == 4
    assert found["sequence-parallel"] is True
    assert (found["sbatch.nodes"], found["sbatch.ntasks-per-node"]) == (2, 8)
    assert found.notes == ("gone.sh, which the script takes in, is not read: it is not beside it",)


def test_the_cluster_that_was_typed_is_taken(tmp_path: Path, foretell: Any) -> None:
    file = tmp_path / "run.sh"
    file.write_text(f"{TRAIN} --tensor-model-parallel-size 4 --num-layers 8 --hidden-size 64 --num-attention-heads 4 "
                    "--seq-length 32 --vocab-size 128 --pipeline-model-parallel-size 4")  # fmt: skip
    ran = foretell("predict", "--from-config", str(file))
    assert ran.code == 2
    assert "8 ranks are not a multiple of the 16" in ran.err
    ran = foretell("predict", "--from-config", str(file), "--on", "32xh100")
    assert ran.code in (0, 1)
    assert "starts 8 ranks; --on has 32, which are taken" in " ".join(ran.err.split())  # folded by the path's length
    assert "pp4:1f1b dp2 tp4" in ran.err


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ("--language-model-type mistral_7b", "a vision-language model"),
        ("--recompute-granularity selective --recompute-modules mhc", "recompute_modules mhc"),
    ],
)
def test_what_no_plan_describes_is_refused_by_name(tmp_path: Path, more: str, what: str) -> None:
    with pytest.raises(BadInput, match=what) as problem:
        opened(tmp_path, f"{TRAIN} {more}").recipe(Launch())
    assert problem.value.fix


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ("--hybrid-layer-pattern M-M*", "layers of several kinds"),
        ("--encoder-num-layers 12", "an encoder and a decoder"),
        ("--window-attn-skip-freq 2", "windows of attention"),
    ],
)
def test_a_model_that_the_zoo_has_not_is_not_guessed(tmp_path: Path, foretell: Any, more: str, what: str) -> None:
    sizes = "--num-layers 8 --hidden-size 64 --num-attention-heads 4 --seq-length 32 --vocab-size 128"
    assert opened(tmp_path, f"{TRAIN} {sizes}").recipe(Launch()).model
    found = opened(tmp_path, f"{TRAIN} {sizes} {more}")
    assert not found.recipe(Launch()).model
    assert any(what in note for note in found.notes)
    ran = foretell("predict", "--from-config", found.file, "--on", "8xh100")
    assert ran.code == 2
    assert what in " ".join(ran.err.split())


def test_options_that_nobody_knows_are_told(tmp_path: Path) -> None:
    found = opened(tmp_path, f"{TRAIN} --lr 3e-4 --new-and-dear 7 --save $1 --dearest-of-all yes")
    assert found.notes == ("not read, and may change the cost: new-and-dear, dearest-of-all",)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("x=(1 2", 1),
        ("a\nif true; then\n b\n", 4),
        ("a\necho 'x\n", 2),
        ("echo $(( 1 + \n", 2),
        ("f(", 1),
        ("case x in\n a) b\n", 3),
        ("a ;; b", 1),
        ("{ a\n", 2),
        ("x=${y\n", 2),
    ],
)
def test_what_is_wrong_and_in_which_line(text: str, line: int) -> None:
    with pytest.raises(BadInput) as problem:
        parse(text)
    assert problem.value.where == f"line {line}"
    assert problem.value.fix


@pytest.mark.parametrize("text", ["while true; do x=$x$x; done\n" * 3, "f() { f; }\nf", "((x))\n" * 30_000])
def test_scripts_without_end_come_to_one(text: str) -> None:
    with pytest.raises(BadInput, match=r"without end|loops inside loops"):
        read(f"x=aaaa\n{text}{'x=$x$x$x$x;' * 30}\nt.py --a $x\n")


def test_sums_are_those_of_a_shell() -> None:
    known = {"n": "3", "word": "x"}.get
    assert computed("n ** 2 - -1", known) == 10
    assert computed("-7 / 2", known) == -3
    assert computed("-7 % 3", known) == -1
    assert computed("!(n == 3) || 1 << 2 > 3 && 1", known) == 1
    for text in ("word + 1", "gone", "1 +", "1 / 0", "2 ** 999", "(1", "1 2", "9" * 40):
        assert computed(text, known) is None
