"""Workers side by side: processes that share the cores, end together, and end with the one that started them."""

import contextlib
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import active_children, get_context, parent_process
from threading import Event, Thread
from typing import Any, TypeVar

import torch

from robustbench_dec import bars as progress_bars
from robustbench_dec.errors import BadInput

T = TypeVar("T")
R = TypeVar("R")

GLANCE = 0.2
"""Seconds between two looks whether all workers live."""


def side_by_side(
    work: Callable[[T], R], items: Sequence[T], jobs: int, title: str, progress: bool, unit: str = "run"
) -> list[R]:
    """work(item) for every item, in the items' order.

    `jobs` items are worked on side by side, each by a process with its share of the cores. One thread each is as fast
    as all cores on one run after the other, and gives the same bits on machines with other numbers of cores.
    """
    workers = min(jobs, len(items))
    with (
        share_of_cores(jobs) as threads,
        progress_bars.bar(total=len(items), desc=title, unit=unit, show=progress) as bar,
    ):
        if workers <= 1:
            done = []
            for item in items:
                done.append(work(item))
                bar.update()
            return done
        with pool(workers, threads) as submit:
            futures = [submit(work, item) for item in items]
            for future in as_completed(futures):
                future.result()
                bar.update()
            return [future.result() for future in futures]


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextlib.contextmanager
def share_of_cores(jobs: int) -> Iterator[int]:
    """The threads of each of so many workers, for this process too while it is the only one.

    However few pieces of work are left: numbers depend on the threads a little, and what a stopped command has left
    must come out as if it had not been stopped.
    """
    former = torch.get_num_threads()
    threads = former if jobs <= 1 else max(1, cores() // jobs)
    torch.set_num_threads(threads)
    try:
        yield threads
    finally:
        torch.set_num_threads(former)


@contextlib.contextmanager
def pool(workers: int, threads: int) -> Iterator[Callable[..., Future[Any]]]:
    """`submit` of a pool of so many processes with so many threads each; a failure inside ends them all."""
    context = get_context("forkserver")  # torch's threads do not survive a fork of this process
    context.set_forkserver_preload(["robustbench_dec.running.suite"])  # imported once, not by every worker
    started, ended = context.Value("i", 0), Event()
    with progress_bars.shared_terminal() as terminal:
        executor = ProcessPoolExecutor(
            workers, context, initializer=_start_worker, initargs=(threads, terminal, started)
        )

        def submit(*call: Any) -> Future[Any]:
            with _workers_ignore_interrupts():
                return executor.submit(*call)

        Thread(target=_end_with_any_worker, args=(executor, ended), daemon=True).start()
        try:
            yield submit
        except BaseException as error:  # a failure or Ctrl-C ends all workers; what they had finished is on disk
            for worker in active_children():
                worker.terminate()
            if isinstance(error, BrokenProcessPool):
                raise BadInput(
                    "one of the workers was killed, most likely because memory ran out; the same command goes on where "
                    "this one was, and needs less memory with fewer --jobs"
                ) from error
            raise
        finally:
            ended.set()
            executor.shutdown(wait=True, cancel_futures=True)


@contextlib.contextmanager
def _workers_ignore_interrupts() -> Iterator[None]:
    """Processes started inside leave Ctrl-C to this one, which ends them."""
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


def _end_with_any_worker(executor: ProcessPoolExecutor, ended: Event) -> None:
    """End all workers when one was killed, so that the pool is broken.

    The pool by itself overlooks the death of a worker that was started after its last look at which ones there are
    (CPython 3.11: `submit` wakes the thread that looks before it starts the process), and waits for it for ever.
    """
    while not ended.wait(GLANCE):
        processes = list((executor._processes or {}).values())
        if any(process.exitcode is not None for process in processes):
            for process in processes:
                process.terminate()
            return


def _start_worker(threads: int, terminal: str, started: Any) -> None:
    Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    with started.get_lock():
        index, started.value = started.value, started.value + 1
    progress_bars.start_worker(index, terminal)


def _end_with_parent() -> None:
    """Workers of a process that was killed would go on for nobody."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
