"""The command line: `robustbench-dec` or `python -m robustbench_dec`."""

import os
import sys
from typing import Annotated

import typer

import robustbench_dec
from robustbench_dec.commands import attack, protocol, publish, show, submit, tables, theory, train, zoo
from robustbench_dec.errors import BadInput, details, printable

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="""Adversarial robustness of models that were trained without a server.

    First steps: "robustbench-dec train" trains a small network on 8x8 digits in seconds, and "robustbench-dec table table2 --profile quick" makes a small version of the paper's Table 2 on real MNIST and CIFAR-10.""",  # noqa: E501 (wrapped by the terminal)
)
app.command()(show.data)
app.command("list")(show.list_parts)
app.command()(train.train)
app.command()(attack.attack)
app.command()(attack.compare)
app.command()(attack.audit)
app.command()(submit.score)
app.command()(submit.submit)
app.command()(tables.table)
app.command()(tables.reproduce)
app.command()(tables.render)
app.command()(tables.tune)
app.command()(protocol.trials)
app.command()(protocol.verify)
app.command()(publish.publish)
app.command()(publish.withdraw)
app.command()(theory.check)
app.command()(theory.diagnose)
app.command()(show.flags)
app.command()(show.page)
app.command()(show.radius)
app.command()(show.export)
app.add_typer(zoo.app, name="zoo")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"robustbench-dec {robustbench_dec.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[bool, typer.Option("--version", is_eager=True, callback=_version, help="The version.")] = False,
    traceback: Annotated[bool, typer.Option("--traceback", help="Tell all about an error, not one sentence.")] = False,
) -> None:
    pass


def main() -> None:
    """Run a command; a BadInput is one sentence on standard error and exit code 2, Ctrl-C loses nothing."""
    traced = "--traceback" in sys.argv[1:]
    sys.argv[1:] = [word for word in sys.argv[1:] if word != "--traceback"]  # it may stand anywhere
    try:
        sys.exit(app(standalone_mode=False))
    except typer.TyperException as error:  # words that make no command
        if type(error).__name__ != "NoArgsIsHelpError":  # which has shown the help
            reason = " ".join(error.format_message().split()).rstrip(".")
            print(f"robustbench-dec: {reason}; the same command with --help tells what there is", file=sys.stderr)
        sys.exit(2)
    except BadInput as error:
        print(f"robustbench-dec: {_sentence(error)}", file=sys.stderr)
        if traced:
            print(printable(details(error)), file=sys.stderr)
        sys.exit(2)
    except (KeyboardInterrupt, SystemExit) as error:
        if isinstance(error, SystemExit) and error.code != 130:  # 130 is how typer passes Ctrl-C on
            raise
        print("robustbench-dec: stopped; the same command goes on where this one was", file=sys.stderr)
        sys.exit(130)


def _sentence(error: BadInput) -> str:
    """What a refusal says, on one line; under torchrun with the rank that says it."""
    sentence = printable(" ".join(str(error).split()))  # what it quotes may have several lines
    if "RANK" in os.environ:
        from robustbench_dec.networks.ranks import Lost, Ranks

        if Ranks.present() and not isinstance(error, Lost):
            return f"rank {os.environ['RANK']}: {sentence}"
    return sentence
