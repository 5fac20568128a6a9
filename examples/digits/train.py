"""Train a small network on scikit-learn's digits and print its accuracy after every epoch."""

import argparse

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--lr", type=float, default=0.001)
parser.add_argument("--momentum", type=float, default=0.9)
parser.add_argument("--hidden", type=int, default=32)
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--epochs", type=int, default=30)
args = parser.parse_args()

images, labels = load_digits(return_X_y=True)
train_x, test_x, train_y, test_y = train_test_split(images / 16.0, labels, test_size=0.3, random_state=0)

model = MLPClassifier(
    hidden_layer_sizes=(args.hidden,),
    solver="sgd",
    learning_rate_init=args.lr,
    momentum=args.momentum,
    batch_size=args.batch_size,
    random_state=0,
)
for epoch in range(1, args.epochs + 1):
    model.partial_fit(train_x, train_y, classes=range(10))
    print(f"epoch {epoch}: accuracy={model.score(test_x, test_y):.4f} loss={model.loss_:.4f}", flush=True)
