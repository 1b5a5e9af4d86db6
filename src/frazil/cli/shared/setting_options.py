"""Options that commands share: `--output`, and one option for each setting."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any, NoReturn

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
    options = [_option(setting) for setting in all_settings() if setting.flag is not None]
    config_help = f"Settings in TOML. [env: {CONFIG_ENV}]"
    config = typer.Option("--config", metavar="FILE", help=config_help)
    names = {parameter.name for parameter in options}

    def with_settings(**values: Any) -> None:
        # An option that accepts several values is an empty list if it is absent.
        flags = {name: value for name in names if (value := values.pop(name)) not in (None, [])}
        try:
            resolved = resolve(flags, config_file=values.pop("config"))
        except SettingsError as error:
            fail(str(error), values.get("output", Output.TEXT), USAGE_ERROR)
        command(resolved, **values)

    options.append(keyword("config", Annotated[str | None, config]))
    return declared(with_settings, command, [*options, *own_options(command)])


def own_options(command: Callable[..., None]) -> list[inspect.Parameter]:
    """Return the parameters of a command as keywords, without the first, which is not an option."""
    _, *rest = inspect.signature(command, eval_str=True).parameters.values()
    return [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in rest]


def declared(
    wrapper: Callable[..., None], command: Callable[..., None], parameters: list[inspect.Parameter]
) -> Callable[..., None]:
    """Give the wrapper of a command its name, its help and the parameters that typer reads."""
    wrapper.__name__ = command.__name__
    wrapper.__doc__ = command.__doc__
    wrapper.__annotations__ = {each.name: each.annotation for each in parameters}
    wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return wrapper


def keyword(name: str, annotation: Any, default: Any = None) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=default, annotation=annotation)


def _option(setting: Setting) -> inspect.Parameter:
    """Build the option of a setting; `frazil.settings` parses its text."""
    assert setting.flag is not None
    help_text = f"{setting.help} [env: {setting.env}] [default: {_shown_default(setting)}]"
    if setting.is_switch:
        flags = f"{setting.flag}/--no-{setting.flag.removeprefix('--')}"
        return keyword(setting.name, Annotated[bool | None, typer.Option(flags, help=help_text)])
    option = typer.Option(setting.flag, metavar=setting.metavar, help=help_text)
    if isinstance(setting.default, tuple):
        return keyword(setting.name, Annotated[list[str] | None, option])
    return keyword(setting.name, Annotated[str | None, option])


def _shown_default(setting: Setting) -> str:
    if isinstance(setting.default, bool):
        return "true" if setting.default else "false"
    return str(setting.default) if setting.default not in (None, ()) else "none"
