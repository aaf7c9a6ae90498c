"""A rank that torchrun forked: forked_rank.py -m MODULE ..., or forked_rank.py FILE ..., as for a new interpreter."""

import runpy
import signal
import sys

if __name__ == "__main__":
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):  # the handlers are torchrun's
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    del sys.argv[0]
    try:
        if sys.argv[0] == "-m":
            del sys.argv[0]
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as ended:  # torchrun waits for a function to return, where it forks
        if ended.code:
            raise
