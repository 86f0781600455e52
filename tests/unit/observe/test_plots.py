"""The learning curves: smoothing against a plain computation, and the drawn file."""

from pathlib import Path

import matplotlib.image
import numpy as np
import pytest

from lightrft_ray.config.errors import UserError
from lightrft_ray.observe.plots import moving_mean, plot_curves

REWARD_BLUE = (0x1F, 0x5F, 0xA8)
ACCURACY_ORANGE = (0xB5, 0x54, 0x1C)


@pytest.mark.parametrize("window", [1, 3, 7, 25])
def test_moving_mean_is_the_mean_of_the_neighbours_there_are(window: int) -> None:
    values = np.random.default_rng(0).normal(size=11).tolist()
    half = window // 2
    expected = [np.mean(values[max(0, i - half) : i + half + 1]) for i in range(len(values))]
    np.testing.assert_allclose(moving_mean(values, window), expected, rtol=0, atol=1e-12)


def test_curves_are_drawn_where_the_values_are(tmp_path: Path) -> None:
    metrics = _write(tmp_path, steps=40, accuracy_every=10)
    plot_curves(metrics, tmp_path / "curves.png")
    image = matplotlib.image.imread(tmp_path / "curves.png")
    assert image.shape == (1050, 1200, 4)
    blue, orange = _where(image, REWARD_BLUE), _where(image, ACCURACY_ORANGE)
    assert blue[0].max() < 525 < orange[0].min()  # reward above, accuracy below
    assert np.ptp(blue[1]) > 800  # both go over the whole width
    assert np.ptp(orange[1]) > 800
    # The reward rises: the line is lower (a larger row number) at the left end than at the right.
    legend_free = blue[0][blue[1] < 300].mean(), blue[0][blue[1] > 1000].mean()
    assert legend_free[0] > legend_free[1] + 100


def test_a_last_line_cut_short_does_not_change_the_picture(tmp_path: Path) -> None:
    metrics = _write(tmp_path, steps=5, accuracy_every=2)
    plot_curves(metrics, tmp_path / "whole.png")
    with metrics.open("a") as file:
        file.write('{"step": 6, "reward/mean": 0.')
    plot_curves(metrics, tmp_path / "cut.png")
    whole, cut = (matplotlib.image.imread(tmp_path / f"{name}.png") for name in ("whole", "cut"))
    np.testing.assert_array_equal(whole, cut)


def test_a_run_without_evaluation_has_an_empty_lower_panel(tmp_path: Path) -> None:
    metrics = tmp_path / "metrics.jsonl"
    metrics.write_text('{"step": 1, "reward/mean": 0.5}\n{"step": 2, "reward/mean": null}\n')
    plot_curves(metrics, tmp_path / "curves.png")
    image = matplotlib.image.imread(tmp_path / "curves.png")
    assert _where(image, ACCURACY_ORANGE)[0].size == 0


def test_a_run_without_a_step_is_refused(tmp_path: Path) -> None:
    metrics = tmp_path / "metrics.jsonl"
    metrics.write_text('{"step": 0, "publish/version": 1}\n')
    with pytest.raises(UserError, match="no step to plot"):
        plot_curves(metrics, tmp_path / "curves.png")
    assert not (tmp_path / "curves.png").exists()


def _write(folder: Path, steps: int, accuracy_every: int) -> Path:
    path = folder / "metrics.jsonl"
    lines = ['{"step": 0, "eval/accuracy": 0.3}']
    for step in range(1, steps + 1):
        accuracy = (
            f', "eval/accuracy": {0.3 + 0.6 * step / steps}' if step % accuracy_every == 0 else ""
        )
        lines.append(f'{{"step": {step}, "reward/mean": {0.2 + 0.7 * step / steps}{accuracy}}}')
    path.write_text("\n".join(lines) + "\n")
    return path


def _where(image: np.ndarray, colour: tuple[int, int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of the pixels of exactly this colour."""
    rows, columns = np.nonzero((np.rint(image[..., :3] * 255) == colour).all(axis=-1))
    return rows, columns
