"""One other library's seconds, set up as its documentation says; started by benchmarks/peers.py, imports no suite.

    python peer_worker.py LIBRARY FOLDER

FOLDER/job.safetensors has the images, the labels and the weights of the network. Prints one JSON line: for trainers
the seconds of each round but the first, for attacks those of each batch by PGD and by FGSM.
"""

import itertools
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

Job = dict[str, Tensor]

NODES, BATCH, STEPS, ROUNDS = 5, 128, 5, 6
EPS, ALPHA, PGD_STEPS = 0.1, 0.025, 20


class Network(nn.Module):
    """The suite's network for MNIST, of PyTorch's own layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(1568, 10),
        )  # fmt: skip

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.layers((images - 0.1307) / 0.3081)
        return logits


def batches(job: Job, attack: Callable[[Tensor, Tensor], Any], size: int = 500) -> list[float]:
    """Seconds of each batch of test images."""
    images, labels = job["test_images"], job["test_labels"]
    taken = []
    for first in range(0, len(images), size):
        began = time.perf_counter()
        attack(images[first : first + size], labels[first : first + size])
        taken.append(time.perf_counter() - began)
    return taken


def torchattacks(job: Job, model: nn.Module) -> dict[str, list[float]]:
    import torchattacks as library

    return {
        "pgd": batches(job, library.PGD(model, eps=EPS, alpha=ALPHA, steps=PGD_STEPS)),
        "fgsm": batches(job, library.FGSM(model, eps=EPS)),
    }


def foolbox(job: Job, model: nn.Module) -> dict[str, list[float]]:
    import foolbox as library

    wrapped = library.PyTorchModel(model, bounds=(0, 1), device="cpu")
    pgd = library.attacks.LinfPGD(abs_stepsize=ALPHA, steps=PGD_STEPS)
    fgsm = library.attacks.FGSM()
    return {
        "pgd": batches(job, lambda images, labels: pgd(wrapped, images, labels, epsilons=EPS)),
        "fgsm": batches(job, lambda images, labels: fgsm(wrapped, images, labels, epsilons=EPS)),
    }


def art(job: Job, model: nn.Module) -> dict[str, list[float]]:
    from art.attacks.evasion import FastGradientMethod, ProjectedGradientDescent
    from art.estimators.classification import PyTorchClassifier

    classifier = PyTorchClassifier(
        model, nn.CrossEntropyLoss(), input_shape=(1, 28, 28), nb_classes=10, clip_values=(0, 1), device_type="cpu"
    )
    pgd = ProjectedGradientDescent(
        classifier, eps=EPS, eps_step=ALPHA, max_iter=PGD_STEPS, num_random_init=1, batch_size=500, verbose=False
    )
    fgsm = FastGradientMethod(classifier, eps=EPS, batch_size=500)
    return {
        "pgd": batches(job, lambda images, labels: pgd.generate(images.numpy(), labels.numpy())),
        "fgsm": batches(job, lambda images, labels: fgsm.generate(images.numpy(), labels.numpy())),
    }


def fluke(job: Job, model: nn.Module) -> dict[str, list[float]]:
    # torchvision may miss these beside a torch for CPUs, and cannot be imported without them.
    for name in ("nms", "qnms"):
        torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    from fluke import DDict, FlukeENV
    from fluke.algorithms.fedavg import FedAVG
    from fluke.data import DataContainer, DataSplitter
    from fluke.evaluation import ClassificationEval

    images, labels = job["train_images"], job["train_labels"]
    FlukeENV().set_seed(0)
    FlukeENV().set_evaluator(ClassificationEval(eval_every=1000, n_classes=10))  # only training is timed
    data = DataContainer(images, labels, images[:BATCH], labels[:BATCH], 10)
    splitter = DataSplitter(data, distribution="iid")
    client = DDict(batch_size=BATCH, local_epochs=1, loss=nn.CrossEntropyLoss)
    client.update(optimizer=DDict(name=torch.optim.SGD, lr=0.1), scheduler=DDict(step_size=1, gamma=1))
    settings = DDict(client=client, server=DDict(weighted=True), model=model)
    method = FedAVG(NODES, splitter, settings)
    method.run(1, eligible_perc=1)
    taken = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        method.run(1, eligible_perc=1)
        taken.append(time.perf_counter() - began)
    return {"round": taken}


def flower(job: Job, model: nn.Module) -> dict[str, list[float]]:
    from flwr.client import ClientApp, NumPyClient
    from flwr.common import ndarrays_to_parameters
    from flwr.server import ServerApp, ServerAppComponents, ServerConfig
    from flwr.server.strategy import FedAvg
    from flwr.simulation import run_simulation

    images, labels = job["train_images"], job["train_labels"]
    ends: list[float] = []

    class Client(NumPyClient):
        def __init__(self, number: int) -> None:
            self.share = slice(number * BATCH * STEPS, (number + 1) * BATCH * STEPS)

        def fit(self, parameters: Any, config: Any) -> Any:
            torch.set_num_threads(1)
            network = Network()
            for weight, value in zip(network.parameters(), parameters, strict=True):
                weight.data = torch.from_numpy(value.copy())
            optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
            for a, b in zip(images[self.share].split(BATCH), labels[self.share].split(BATCH), strict=True):
                optimizer.zero_grad()
                nn.functional.cross_entropy(network(a), b).backward()
                optimizer.step()
            return [weight.detach().numpy() for weight in network.parameters()], BATCH * STEPS, {}

    class Timed(FedAvg):
        def aggregate_fit(self, *arguments: Any) -> Any:
            done = super().aggregate_fit(*arguments)
            ends.append(time.perf_counter())
            return done

    def client_fn(context: Any) -> Any:
        return Client(int(context.node_config["partition-id"])).to_client()

    def server_fn(context: Any) -> Any:
        start = ndarrays_to_parameters([weight.detach().numpy() for weight in model.parameters()])
        strategy = Timed(
            fraction_evaluate=0.0, min_fit_clients=NODES, min_available_clients=NODES, initial_parameters=start
        )
        return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=ROUNDS + 1))

    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    run_simulation(ServerApp(server_fn=server_fn), ClientApp(client_fn=client_fn), NODES, backend_config=resources)
    return {"round": [after - before for before, after in itertools.pairwise(ends)]}


def main() -> None:
    library, folder = sys.argv[1], Path(sys.argv[2])
    job = safetensors.torch.load_file(folder / "job.safetensors")
    model = Network().eval()
    for number, weight in enumerate(model.parameters()):
        weight.data = job[f"weight{number}"]
    found = {"torchattacks": torchattacks, "foolbox": foolbox, "art": art, "fluke": fluke, "flower": flower}
    print(json.dumps(found[library](job, model)))


if __name__ == "__main__":
    main()
