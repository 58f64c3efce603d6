"""scikit-learn on a cluster: a grid search whose fits are tasks, through joblib.

python examples/grid_search.py
"""

import joblib
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVC

import gristmill.compat.joblib  # makes the backend known to joblib
from gristmill import Client, LocalCluster


def main() -> None:
    """Four candidates, three folds each."""
    digits, labels = load_digits(return_X_y=True)
    search = GridSearchCV(SVC(), {"C": [1, 10], "gamma": [0.0001, 0.001]}, cv=3, n_jobs=-1)
    with (
        LocalCluster(workers=2) as cluster,
        Client(cluster) as client,
        joblib.parallel_backend(gristmill.compat.joblib.NAME, client=client),
    ):
        search.fit(digits[:400], labels[:400])
    print(f"best: C={search.best_params_['C']}, gamma={search.best_params_['gamma']}: {search.best_score_:.0%} right")


if __name__ == "__main__":
    main()
