"""`llmpack explain`: the story of a rule."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from llmpack.cli.arguments import JsonOption
from llmpack.cli.console import print_facts, print_json

if TYPE_CHECKING:
    from llmpack.validate.rules.rule import Rule


def explain(
    rule: Annotated[str | None, typer.Argument(metavar="RULE", help="Such as LP104; all rules when left out.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Tell what a rule compares, why, and what to do when it is broken."""
    from llmpack.validate.rules.catalogue import RULES

    chosen = RULES if rule is None else (_find_rule(rule),)
    if as_json:
        print_json([_describe(item) for item in chosen])
    elif rule is None:
        print_facts("rules", ((item.id, item.title) for item in chosen))
    else:
        _print_story(chosen[0])


def _find_rule(name: str) -> Rule:
    from difflib import get_close_matches

    from llmpack.errors import UsageError
    from llmpack.validate.rules.catalogue import RULES, RULES_BY_ID

    found = RULES_BY_ID.get(name.upper())
    if found is None:
        nearest = get_close_matches(name.upper(), RULES_BY_ID, n=1)
        hint = f"Nearest: {nearest[0]}." if nearest else None
        raise UsageError("no such rule", given=name, allowed=f"{RULES[0].id} to {RULES[-1].id}", next_step=hint)
    return found


def _describe(rule: Rule) -> dict[str, object]:
    return {
        "id": rule.id,
        "title": rule.title,
        "relation": rule.relation,
        "severity": rule.severity,
        "needs": rule.needs,
        "story": rule.story,
    }


def _print_story(rule: Rule) -> None:
    typer.echo(f"{rule.id}: {rule.title}\n{rule.severity}; {rule.relation}\n\n{rule.story}")
