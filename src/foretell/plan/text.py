"""Reading a plan. An error shows the place, what is expected there, and a plan near it that is legal.

    plan    = [ item { blank item } ]
    item    = axis | "+" policy
    axis    = word ranks [ "[" part "]" ] [ ":" option { "," option } ]
    ranks   = number { "x" number }
    policy  = option | word ":" option

The words and options are those that strategies and policies declare (`syntax.py`). Words are read in
upper or lower case; paths in brackets are kept as they are.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any, TypeAlias

from foretell.errors import BadInput, near
from foretell.plan import synonyms
from foretell.plan.members import policies, strategies
from foretell.plan.mistake import SHOWN, Item, PlanSyntaxError, picture, quoted
from foretell.plan.plan import PART, Plan, grid_of, repeated, too_many
from foretell.plan.policy import Policy
from foretell.plan.strategy import Strategy
from foretell.plan.syntax import MOST, Mismatch, Option, ParsedField, WordChoice, first_reading, read_whole
from foretell.units import product

LONGEST = 1000
"""Characters of the longest plan that is read."""

ROUNDS = 12
"""Mistakes that are mended before the rest of a text is given up."""


def parse(text: str, where: str = "plan") -> Plan:
    """The plan that a text says."""
    if len(text) > LONGEST:
        what = f"a plan of {len(text):,} characters; the longest has {LONGEST:,}"
        raise BadInput(what, where=where, fix="pp4:1f1b dp8:zero3 tp8:sp +m16 +recompute:block +bf16")
    try:
        return _read(text)
    except PlanSyntaxError as problem:
        raise BadInput(
            picture(text, problem), where=f"{where}, character {problem.at + 1}", fix=_nearest(text)
        ) from None


def _read(text: str) -> Plan:
    _refuse_odd_characters(text)
    axes: list[Strategy] = []
    said: list[Policy] = []
    for match in re.finditer(r"\S+", text):
        item = Item(text, match.start(), match.end())
        if item.text.startswith("+"):
            _add_policy(item, _read_policy(item), said)
        else:
            axis, inside = _read_axis(item)
            if repeated(axis, tuple(axes)):
                raise item.wrong(f"{axis.word} a second time", 0, "another axis, a policy, or the end")
            if product(other.world for other in (*axes, axis)) > MOST:
                raise _too_many(item, axis, axes)
            axes.append(axis)
            for policy, at, without in inside:
                _add_policy(item, policy, said, at, without)
    return Plan(tuple(axes), tuple(said))


def _too_many(item: Item, axis: Strategy, before: list[Strategy]) -> PlanSyntaxError:
    """An axis that gives the plan more ranks than there can be, and the most it could have."""
    each = max(1, axis.world // axis.ranks)  # dp4:zero3,shard8 is 8 ranks for each of 4
    room = MOST // each // product(other.world for other in before)
    fewer = [re.sub("[0-9x]+", str(room), item.text, count=1)] if room > 1 and not grid_of(axis) else []
    what = f"{too_many((*before, axis))}; a plan has at most {MOST:,}"
    return item.wrong(what, len(axis.word), f"at most {room:,}", *fewer)


def _refuse_odd_characters(text: str) -> None:
    """Plans are ASCII: a full-width digit or a long dash looks right and is not."""
    odd = re.search(r"[^\x20-\x7e\t\r\n]", text)
    if odd is None:
        return
    sign = odd[0]
    alike = str(int(sign)) if sign.isdecimal() else unicodedata.normalize("NFKC", sign)
    mended = [text[: odd.start()] + put + text[odd.end() :] for put in (alike, " ", "") if put != sign]
    raise PlanSyntaxError(f"{sign!r} is not used in plans", odd.start(), "a letter, digit or sign of ASCII", mended)


def _add_policy(item: Item, policy: Policy, said: list[Policy], at: int = 0, without: str = "") -> None:
    """One more policy; the same kind twice only where both can be joined."""
    for place, other in enumerate(said):
        if other.word == policy.word:
            joined = other.joined(policy)
            if joined is None:
                raise item.wrong(f"{policy.word} a second time", at, "a policy of another kind, or the end", without)
            said[place] = joined
            return
    said.append(policy)


# --- axes ---------------------------------------------------------------------------------------


_Inside: TypeAlias = list[tuple[Policy, int, str]]
"""Policies among the options of an axis: where each stands, and the axis without it."""


def _read_axis(item: Item) -> tuple[Strategy, _Inside]:
    """An axis, and the policies written among its options."""
    kind, at = _read_word(item)
    fields, at = _read_ranks(item, kind, at)
    at = _read_part(item, kind, at, fields)
    inside = _read_options(item, kind, at, fields)
    return kind(**fields), inside


def _read_word(item: Item) -> tuple[type[Strategy], int]:
    match = re.match("[a-z]*", item.text)
    word = match[0] if match else ""
    if word in strategies():
        return strategies()[word], len(word)
    rest = item.text[len(word) :]
    instead = [known + rest for known in near(word, strategies())]
    if _as_policy(item.text):
        instead.insert(0, f"+{item.text}")
    for kind in strategies().values():
        if _meant(kind.syntax, item.text):
            instead.insert(0, f"{kind.word}8:{item.text}")
    if word == "ep":
        what = "no strategy is called 'ep': experts are an option of dp, dp64:ep64"
        raise item.wrong(what, 0, f"an axis ({', '.join(strategies())}) or a policy (+...)", *instead)
    what = f"no strategy is called {quoted(word)}" if word else f"no axis begins with {item.text[0]!r}"
    raise item.wrong(what, 0, f"an axis ({', '.join(strategies())}) or a policy (+...)", *instead)


def _read_ranks(item: Item, kind: type[Strategy], at: int) -> tuple[dict[str, Any], int]:
    """How many ranks, perhaps as a grid; and where reading goes on."""
    pattern = "[0-9]+(?:x[0-9]+)*" if kind.grid else "[0-9]+"
    match = re.compile(pattern).match(item.text, at)
    end = match.end() if match else at
    sizes: list[int] = []
    for text in item.text[at:end].split("x"):
        number = read_whole(text)
        if isinstance(number, Mismatch):
            raise _wrong_ranks(item, kind, at + number.at, number, len(text))
        sizes.append(number.value)
        at += len(text) + 1
    if product(sizes) > MOST:
        raise item.wrong(
            "too many ranks", len(kind.word), f"at most {MOST:,} ranks", f"{kind.word}{sizes[0]}{item.text[end:]}"
        )
    if len(sizes) == 1:
        return {"ranks": sizes[0]}, end
    return {"ranks": product(sizes), "grid_ranks": tuple(sizes)}, end


def _wrong_ranks(item: Item, kind: type[Strategy], at: int, number: Mismatch, length: int) -> PlanSyntaxError:
    before, after = item.text[:at], item.text[at + length :]
    if length:
        what = f"{quoted(item.text[at : at + length])} cannot be a number of ranks"
        return item.wrong(what, at, number.expected, *(before + repair + after for repair in number.repairs))
    stripped = re.match(r"[^0-9a-z]([0-9].*)", after)  # dp=8, dp:8, dp-8
    instead = [before + stripped[1]] if stripped else []
    what = f"{kind.word} has no number of ranks"
    return item.wrong(what, at, number.expected, *instead, f"{before}2{after}", f"{before}2")


def _read_part(item: Item, kind: type[Strategy], at: int, fields: dict[str, Any]) -> int:
    """The part of the model in brackets, if there is one; and where reading goes on."""
    if item.text[at : at + 1] != "[":
        return at
    end = item.text.find("]", at)
    without = item.text[:at] + (item.text[end + 1 :] if end >= 0 else "")
    if not kind.parts:
        able = ", ".join(word for word, other in strategies().items() if other.parts)
        raise item.wrong(f"{kind.word} is for the whole model", at, f": or the end (parts: {able})", without)
    path = re.compile(PART).match(item.text, at + 1)
    stop = path.end() if path else at + 1
    if not path or stop != end:
        closed = f"{item.text[:stop]}]{item.text[stop:]}"
        cut = f"{item.text[:stop]}]"
        expected = "]" if path else "a path such as fc*, conv1..pool2"
        raise item.wrong(f"{kind.word}[: the part of the model is not closed", stop, expected, closed, cut, without)
    fields["only"] = path[0]
    return end + 1


def _read_options(item: Item, kind: type[Strategy], at: int, fields: dict[str, Any]) -> _Inside:
    """What stands after the colon: into the fields, and the policies among it."""
    if at == len(item.text):
        return []
    if item.text[at] != ":":
        raise _wrong_end(item, kind, at)
    inside: _Inside = []
    texts = item.text[at + 1 :].split(",")
    start = at + 1
    for place, text in enumerate(texts):
        others = ",".join(other for other in texts[:place] + texts[place + 1 :] if other)
        without = f"{item.text[:at]}:{others}" if others else item.text[:at]
        option, value = _read_option(item, kind, start, text, without)
        if isinstance(value, Policy):
            inside.append((value, start, without))
        elif option.field in fields:
            raise item.wrong(
                f"{option.field} of {kind.word} a second time", start, "another option, or the end", without
            )
        else:
            fields[option.field] = value.value
        start += len(text) + 1
    return inside


def _read_option(
    item: Item, kind: type[Strategy], start: int, text: str, without: str
) -> tuple[Option, ParsedField | Policy]:
    """One option of an axis, or a policy that may be written there: `pp4:1f1b,m16`."""
    guests = [policy for policy in policies().values() if kind.word in policy.inside]
    for owner in (kind, *guests):
        reading = first_reading(owner.syntax, text)
        if reading is None:
            continue
        option, value = reading
        if isinstance(value, Mismatch):
            instead = [item.text[:start] + repair + item.text[start + len(text) :] for repair in value.repairs]
            raise item.wrong(
                f"{quoted(text)} of {kind.word} is wrong", start + value.at, value.expected, *instead, without
            )
        return option, owner(**{option.field: value.value}) if issubclass(owner, Policy) else value
    raise _wrong_option(item, kind, start, text, without)


def _wrong_end(item: Item, kind: type[Strategy], at: int) -> PlanSyntaxError:
    """An axis goes on with something that is none of its parts."""
    before, rest = item.text[:at], item.text[at:]
    expected = ": and options, a blank, or the end" if kind.syntax else "a blank, or the end"
    bare = rest.lstrip("-_:=,;/&")
    instead = [f"{before} {bare}", f"{before}:{bare}"]
    if _meant(kind.syntax, bare.partition(",")[0]):  # dp8-zero3, dp8/zero3
        instead.reverse()
    return item.wrong(f"{quoted(rest)} after {before[:SHOWN]}", at, expected, *instead, before)


def _listed(forms: list[str]) -> str:
    return f"one of {', '.join(forms)}" if len(forms) > 1 else forms[0] if forms else "the end"


def _wrong_option(item: Item, kind: type[Strategy], start: int, text: str, without: str) -> PlanSyntaxError:
    forms = [form for option in kind.syntax for form in option.forms]
    words = [word for option in kind.syntax if isinstance(option, WordChoice) for word in option.words]
    after = item.text[start + len(text) :]
    meant = synonyms.option(text)
    better = [meant.option] if meant and meant.axis == kind.word else []
    if text:
        better += near(text, words)
    instead = [item.text[:start] + word + after for word in better]
    if _as_policy(text):
        instead.append(f"{without} +{text}")
    what = f"{kind.word} has no option {quoted(text)}" if text else f"an option of {kind.word} is missing"
    return item.wrong(what, start, _listed(forms), *instead, without)


# --- policies -----------------------------------------------------------------------------------


def _read_policy(item: Item) -> Policy:
    text = item.text[1:]
    attempt = _attempt(text)
    if attempt is not None:
        policy, start, option, value = attempt
        if isinstance(value, ParsedField):
            return policy(**{option.field: value.value})
        instead = [item.text[: 1 + start] + repair for repair in value.repairs]
        raise item.wrong(f"{quoted(item.text)} is wrong", 1 + start + value.at, value.expected, *instead)
    word, _, rest = text.partition(":")
    if word in policies() and not policies()[word].bare:
        raise _wrong_policy_option(item, policies()[word], rest)
    raise _unknown_policy(item, text)


def _attempt(text: str) -> tuple[type[Policy], int, Option, ParsedField | Mismatch] | None:
    """The policy that a text is meant for: where its option begins, which one it is, what it says."""
    attempts: list[tuple[type[Policy], int, Option, ParsedField | Mismatch]] = []
    for policy in policies().values():
        start = 0 if policy.bare else len(policy.word) + 1
        said = policy.bare or text.startswith(f"{policy.word}:")
        reading = first_reading(policy.syntax, text[start:]) if said and text[start:] else None
        if reading is not None:
            attempts.append((policy, start, *reading))
    return min(attempts, key=lambda attempt: isinstance(attempt[3], Mismatch)) if attempts else None


def _wrong_policy_option(item: Item, policy: type[Policy], rest: str) -> PlanSyntaxError:
    forms = [form for option in policy.syntax for form in option.forms]
    instead = [f"+{policy.word}:{word}" for word in near(rest, forms)]
    what = f"{policy.word} has no option {quoted(rest)}" if rest else f"{policy.word} does not say what"
    at = len(policy.word) + (2 if item.text[len(policy.word) + 1 :] else 1)
    colon = "" if at > len(policy.word) + 1 else ": and "
    return item.wrong(what, at, colon + _listed(forms), *instead, policy.example)


def _unknown_policy(item: Item, text: str) -> PlanSyntaxError:
    words: list[str] = []
    for policy in policies().values():
        forms = [form for option in policy.syntax for form in option.forms]
        words.extend(forms if policy.bare else [policy.word])
    legal = [*words, *(kind.example[1:] for kind in policies().values())]
    inner = text.replace("+", " +")
    instead = [f"+{inner}"] if inner != text else []
    instead += [f"+{word}" for word in near(text, legal)]
    instead += [kind.example for word, kind in policies().items() if near(text.partition(":")[0], [word])]
    what = f"no policy is called {quoted(text)}" if text else "a + with no policy"
    return item.wrong(what, 1, f"one of {', '.join(words)}", *instead)


def _as_policy(text: str) -> bool:
    """Whether a text would be a policy with a + before it."""
    attempt = _attempt(text)
    return attempt is not None and isinstance(attempt[3], ParsedField)


def _meant(options: tuple[Option, ...], text: str) -> bool:
    reading = first_reading(options, text)
    return reading is not None and isinstance(reading[1], ParsedField)


# --- errors -------------------------------------------------------------------------------------


def _nearest(text: str) -> str:
    """The legal plan that is left when mistakes are mended one after the other, from the left.

    A mended text counts if less follows its first mistake than before, so this ends; when mending
    takes long the rest is given up. What is returned was read as a plan.
    """
    rounds = 0
    while (problem := _problem(text)) is not None:
        left = len(text) - problem.at
        mended = problem.mended if rounds < ROUNDS else []
        text = next((better for better in mended if _left(better) < left), _before(text, problem))
        rounds += 1
    return " ".join(text.split()) or str(Plan())


def _before(text: str, problem: PlanSyntaxError) -> str:
    """The items before the one with the problem."""
    return re.sub(r"\S*\Z", "", text[: problem.at])


def _left(text: str) -> int:
    """Characters from the first mistake on; less than none if there is no mistake."""
    problem = _problem(text)
    return len(text) - problem.at if problem else -1


def _problem(text: str) -> PlanSyntaxError | None:
    try:
        _read(text)
    except PlanSyntaxError as problem:
        return problem
    return None
