"""Laws over every optimizer: what it says it keeps is what torch really keeps, and its steps are torch's."""

from __future__ import annotations

import pytest
import torch

from foretell.model.matrices import hidden_matrices, kept_bytes, trained_elements, update_cost
from foretell.model.operator import OperatorPart
from foretell.model.optimizer import OPTIMIZERS, Optimizer, OptimizerState, UpdateRule, optimizer, update_rule
from foretell.model.source import load
from foretell.program.updates import Bytes, by_rule
from foretell.program.weights import Weight
from foretell.runtime.optimizer import HIDDEN, ByRules, torch_rule

FULL = Bytes(weight=4, gathered=4, wire=4, gradient=4, master=0, state=4)


def weights() -> list[torch.nn.Parameter]:
    """A hidden matrix, a table of words and a bias, with gradients."""
    torch.manual_seed(0)
    found = [torch.nn.Parameter(torch.randn(*shape)) for shape in ((6, 4), (5, 4), (7,))]
    for at, one in enumerate(found):
        setattr(one, HIDDEN, at != 1)
        one.grad = torch.randn_like(one)
    return found


@pytest.mark.parametrize("name", tuple(OPTIMIZERS))
def test_what_it_says_of_itself(name: str) -> None:
    found = optimizer(name)
    assert found.summary and found.references and found.arguments["lr"] > 0
    assert found.torch == "" or hasattr(torch.optim, found.torch)
    for rule in (found.rule, found.matrix_rule or found.rule):
        assert rule.flops > 0 and rule.kernels > 0
        assert rule.passes == 0 or rule.passes >= 3 + 2 * len(rule.states)  # each state is read and written


@pytest.mark.parametrize("name", tuple(OPTIMIZERS))
def test_torch_keeps_as_many_values_and_moves_the_weights(name: str) -> None:
    found, own = optimizer(name), weights()
    before = [one.detach().clone() for one in own]
    running = torch_rule(name, 0.0).over(own)
    running.step()
    for one, old in zip(own, before, strict=True):
        rule = rule_of(found, one)
        kept = sum(value.numel() for value in running.state[one].values() if torch.is_tensor(value) and value.dim())
        rows, columns = one.shape[0], one[0].numel()
        each = sum(state.of_matrix is None for state in rule.states)
        of_matrix = sum(state.of_matrix(rows, columns) for state in rule.states if state.of_matrix)
        assert kept == one.numel() * each + of_matrix
        assert not torch.equal(one.detach(), old)


def rule_of(found: Optimizer, weight: torch.Tensor) -> UpdateRule:
    apart = found.matrix_rule if (found.tables or getattr(weight, HIDDEN)) and weight.dim() > 1 else None
    return apart or found.rule


@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("name", tuple(OPTIMIZERS))
def test_torch_keeps_as_many_bytes(name: str, hidden: bool) -> None:
    """Of a matrix that is large enough to be kept in few bits, after two steps."""
    own = torch.nn.Parameter(torch.randn(96, 64))
    setattr(own, HIDDEN, hidden)
    running, rule = torch_rule(name, 0.0).over([own]), rule_of(optimizer(name), own)
    for _ in range(2):
        own.grad = torch.randn_like(own)
        running.step()
    kept = sum(value.nbytes for value in running.state[own].values() if torch.is_tensor(value) and value.dim())
    assert kept == own.numel() * rule.state_bytes(4) + rule.matrix_state_bytes(96, 64, 4)


@pytest.mark.parametrize(
    ("name", "like", "most"), [("adamw8bit", "adamw", 0.1), ("adamw4bit", "adamw", 0.6), ("adamw16bit", "adamw", 0.02)]
)
def test_moments_in_few_bits_step_nearly_as_those_in_all(name: str, like: str, most: float) -> None:
    """Ten steps on a matrix: how far apart they are, against how far they went."""
    ended: list[torch.Tensor] = []
    for one in (name, like):
        torch.manual_seed(0)
        own = torch.nn.Parameter(torch.randn(64, 64))
        start, running = own.detach().clone(), torch_rule(one, 0.0).over([own])
        for _ in range(10):
            own.grad = torch.randn_like(own) + 0.5 * own.detach()
            running.step()
        ended.append(own.detach() - start)
    apart = ((ended[0] - ended[1]).norm() / ended[1].norm()).item()
    assert 0 < apart < most


def test_lion_by_hand() -> None:
    own = torch.nn.Parameter(torch.tensor([1.0, -2.0]))
    running = type(torch_rule("lion", 0.0).over([own]))([own], lr=0.1, weight_decay=0.5)
    for gradient in ([2.0, 2.0], [-0.1, 2.0]):
        own.grad = torch.tensor(gradient)
        running.step()
    # signs of 0.1 g = +, +; then of 0.9 m + 0.1 g with m = 0.01 g: 0.018 - 0.01 = +, +; decay is lr d w = 0.05 w
    expected = torch.tensor([(1.0 * 0.95 - 0.1) * 0.95 - 0.1, (-2.0 * 0.95 - 0.1) * 0.95 - 0.1])
    torch.testing.assert_close(own.detach(), expected)


def test_states_of_few_bits_are_what_was_published() -> None:
    """Llama-2-7B in bf16, peaks as torchao prints them (torchao/optim/README.md): 51.6, 39.1 and 33.2 GiB."""
    weights = 6_738_415_616
    moments = {
        name: weights * optimizer(name).rule.state_bytes(2) / 2**30 for name in ("adamw", "adamw8bit", "adamw4bit")
    }
    assert moments["adamw"] - moments["adamw8bit"] == pytest.approx(51.6 - 39.1, abs=0.2)
    assert moments["adamw"] - moments["adamw4bit"] == pytest.approx(51.6 - 33.2, abs=0.2)


@pytest.mark.parametrize("name", [name for name in OPTIMIZERS if optimizer(name).torch and optimizer(name).rule.step])
def test_its_own_step_is_that_of_torch(name: str) -> None:
    ours, theirs = weights(), weights()
    by_rules = type("ByRulesOnly", (ByRules,), {"found": optimizer(name)})
    running = [by_rules(ours, lr=0.1), getattr(torch.optim, optimizer(name).torch)(theirs, lr=0.1)]
    for _ in range(3):
        for one in running:
            one.step()
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other)


# hidden matrices


def test_hidden_matrices_are_those_of_layers() -> None:
    gpt = load("gpt2:layers=3", 1)
    found = hidden_matrices(gpt)
    assert set(found) == {
        (2304, 768, 3),
        (768, 768, 3),
        (3072, 768, 3),
        (768, 3072, 3),
    }
    experts = hidden_matrices(load("mixtral-8x7b:layers=2", 1))
    assert {(4096, 14336, 16), (14336, 4096, 16)} <= set(experts)
    assert sum(one.elements for one in found) < trained_elements(gpt) == 60_648_960


def factored() -> Optimizer:
    """Moments of rows and columns, and 8-bit first moments; a product for each matrix."""
    sizes = {"rows": lambda rows, columns: rows, "columns": lambda rows, columns: columns}
    states = tuple(OptimizerState(word, of_matrix=size) for word, size in sizes.items())
    matrix = UpdateRule(
        flops=8,
        states=(OptimizerState("first", width=1.0), *states),
        kernels=9,
        of_matrix=lambda rows, columns: OperatorPart(
            matrix=2 * rows * rows * columns, read=2 * rows * columns, launches=1
        ),
    )
    plain = optimizer("adamw")
    return Optimizer(summary="-", references=(), rule=plain.rule, matrix_rule=matrix, arguments={"lr": 1.0})


def test_states_have_their_own_width_and_size(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, found = load("gpt2:layers=3", 1), factored()
    inner = sum(one.elements for one in hidden_matrices(graph))
    sides = sum((one.rows + one.columns) * one.times for one in hidden_matrices(graph))
    outer = trained_elements(graph) - inner
    assert kept_bytes(graph, found, master=0, width=4) == 8 * outer + inner + 4 * sides
    assert kept_bytes(graph, optimizer("adamw"), master=4, width=4) == 12 * (inner + outer)
    cost = update_cost(graph, found, dict.fromkeys("wgs", 4))
    assert cost.matrix == sum(2 * one.rows * one.elements for one in hidden_matrices(graph))


def test_a_rank_has_its_share_of_the_work_on_matrices(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("model.optimizer", "program.updates"):
        monkeypatch.setattr(f"foretell.{module}.optimizer", {"factored": factored()}.__getitem__)
    monkeypatch.setattr("foretell.program.updates.update_rule", update_rule.__wrapped__)
    table = Weight("words", (0, 0, 0), "", 100, 8, True, ())
    experts = Weight("experts", (0, 1, 0), "layers.0", 24, 8, True, (), stack=4)
    bias = Weight("bias", (0, 2, 0), "layers.0", 16, 1, True, ())
    whole = [(table, 800, 1), (experts, 192, 2), (bias, 16, 2)]
    plain, matrices = by_rule("factored", whole, FULL)
    assert (plain.rule, plain.elements, plain.tensors) == ("factored", 832, 3)
    assert (matrices.rule, matrices.elements, matrices.tensors) == ("factored:matrices", 384, 2)
    assert matrices.matrices.matrix == 8 * 2 * 6 * 6 * 8  # 2 layers of 4 experts of 6 rows and 8 columns
    assert matrices.kept(FULL) == 384 * 1 + 8 * (6 + 8) * 4
    assert plain.kept(FULL) == 832 * 8
    (half,) = [one for one in by_rule("factored", [(experts, 96, 2)], FULL) if one.tensors]
    assert half.matrices.matrix == matrices.matrices.matrix / 2
    update = matrices.action(FULL, on_host=False)
    assert update.cost.matrix == matrices.matrices.matrix and update.rule == "factored:matrices"
