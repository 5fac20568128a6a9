"""Train a linear classifier on scikit-learn's digits, one pass after the other, and push its accuracy after each."""

import argparse
import warnings

from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

import katib

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--alpha", type=float, default=0.0001)
parser.add_argument("--eta", type=float, default=0.01)
parser.add_argument("--epochs", type=int, default=20)
args = parser.parse_args()

images, labels = load_digits(return_X_y=True)
train_x, test_x, train_y, test_y = train_test_split(images / 16.0, labels, test_size=0.3, random_state=0)

model = SGDClassifier(loss="log_loss", alpha=args.alpha, learning_rate="constant", eta0=args.eta, random_state=0)
for epoch in range(args.epochs):
    model.partial_fit(train_x, train_y, classes=range(10))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loss = log_loss(test_y, model.predict_proba(test_x))
    katib.report(accuracy=model.score(test_x, test_y), loss=loss, step=epoch)
