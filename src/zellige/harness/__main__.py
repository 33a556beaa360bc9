"""`python -m zellige.harness`: the `lm_eval` command with the model `zellige`."""

import sys

from ..errors import InputError
from ..terminal import escape


def main() -> int:
    """Run lm-evaluation-harness's own command line; wrong input is one line and exit code 2."""
    try:
        from lm_eval.__main__ import cli_evaluate

        import zellige.harness  # noqa: F401  registers the model

        cli_evaluate()
    except InputError as error:
        print(f"error: {escape(str(error))}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
