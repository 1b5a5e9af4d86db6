"""Options that commands share: `--output`, and one option for each setting."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any, NoReturn, Optional

import typer

from frazil.settings import CONFIG_ENV, Setting, SettingsError, all_settings, resolve


class Output(StrEnum):
    """Output format of a command."""

    TEXT = "text"
    JSON = "json"


OutputOption = Annotated[
    Output, typer.Option("--output", "-o", help="Output format.", show_default=True)
]

USAGE_ERROR = 2
FAILURE = 1


def fail(message: str, output: Output = Output.TEXT, code: int = FAILURE) -> NoReturn:
    """Print an error message to stderr and end the command."""
    if output is Output.JSON:
        typer.echo(json.dumps({"error": {"message": message}}), err=True)
    else:
        typer.echo(f"frazil: {message}", err=True)
    raise typer.Exit(code)


def takes_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Add one option for each setting with a flag to a command, and `--config`.

    The command takes `resolved` first, then its own options by name. The options are built from the
    declarations of the settings, so that names and help texts are written once.
    """
    _, *rest = inspect.signature(command, eval_str=True).parameters.values()
    own = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in rest]
    options = [_option(setting) for setting in all_settings() if setting.flag is not None]
    config = _parameter(
        "config",
        Optional[str],  # noqa: UP045 - typer reads the annotation at run time
        typer.Option("--config", metavar="FILE", help=f"Settings in TOML. [env: {CONFIG_ENV}]"),
    )
    names = {parameter.name for parameter in options}

    def with_settings(**values: Any) -> None:
        # An option that accepts several values is an empty list if it is absent.
        flags = {name: value for name in names if (value := values.pop(name)) not in (None, [])}
        try:
            resolved = resolve(flags, config_file=values.pop("config"))
        except SettingsError as error:
            fail(str(error), values.get("output", Output.TEXT), USAGE_ERROR)
        command(resolved, **values)

    parameters = [*options, config, *own]
    with_settings.__name__ = command.__name__
    with_settings.__doc__ = command.__doc__
    with_settings.__annotations__ = {p.name: p.annotation for p in parameters}
    with_settings.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return with_settings


def _option(setting: Setting) -> inspect.Parameter:
    """Build the option of a setting; `frazil.settings` parses its text."""
    assert setting.flag is not None
    help_text = f"{setting.help} [env: {setting.env}] [default: {_shown_default(setting)}]"
    if setting.is_switch:
        flags = f"{setting.flag}/--no-{setting.flag.removeprefix('--')}"
        return _parameter(setting.name, Optional[bool], typer.Option(flags, help=help_text))  # noqa: UP045
    option = typer.Option(setting.flag, metavar=setting.metavar, help=help_text)
    kind = Optional[list[str]] if isinstance(setting.default, tuple) else Optional[str]  # noqa: UP045
    return _parameter(setting.name, kind, option)


def _shown_default(setting: Setting) -> str:
    if isinstance(setting.default, bool):
        return "true" if setting.default else "false"
    return str(setting.default) if setting.default not in (None, ()) else "none"


def _parameter(name: str, kind: Any, option: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[kind, option],
    )
