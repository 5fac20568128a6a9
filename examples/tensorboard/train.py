"""Train a small network on scikit-learn's digits and write its curves for TensorBoard.

`tensorboard --logdir DIRECTORY` shows them. torch.utils.tensorboard has the same SummaryWriter; tf.summary and Keras
write files of the same kind.
"""

import argparse
import warnings

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from tensorboardX import SummaryWriter

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--logs", default="logs")
parser.add_argument("--lr", type=float, default=0.001)
parser.add_argument("--momentum", type=float, default=0.9)
parser.add_argument("--epochs", type=int, default=15)
args = parser.parse_args()

warnings.simplefilter("ignore")  # a network that diverges is part of the search
images, labels = load_digits(return_X_y=True)
train_x, test_x, train_y, test_y = train_test_split(images / 16.0, labels, test_size=0.3, random_state=0)
model = MLPClassifier(solver="sgd", learning_rate_init=args.lr, momentum=args.momentum, batch_size=64, random_state=0)

with SummaryWriter(f"{args.logs}/train") as train, SummaryWriter(f"{args.logs}/test") as test:
    for epoch in range(args.epochs):
        model.partial_fit(train_x, train_y, classes=range(10))
        train.add_scalar("loss", model.loss_, epoch)
        test.add_scalar("accuracy", model.score(test_x, test_y), epoch)
        for writer in (train, test):
            writer.flush()  # otherwise they write every two minutes
