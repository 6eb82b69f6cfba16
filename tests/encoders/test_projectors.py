import pytest
import torch
from torch import nn

from isotrope.core.errors import InputError
from isotrope.encoders import DINOHead, predictor, projector


def spelled(head):
    """Linear layers as (in, out, bias), batch norms as their affine, ReLU as itself."""
    found = []
    for layer in head:
        if isinstance(layer, nn.Linear):
            found.append((layer.in_features, layer.out_features, layer.bias is not None))
        else:
            found.append(layer.affine if isinstance(layer, nn.BatchNorm1d) else type(layer))
    return found


RELU = nn.ReLU
HEADS = {
    "simclr": (
        projector(512, [512], 128),
        [(512, 512, False), True, RELU, (512, 128, True)],
    ),
    "without batch norm": (
        projector(512, [512], 128, batch_norm=False),
        [(512, 512, True), RELU, (512, 128, True)],
    ),
    "byol": (
        projector(512, [1024], 256),
        [(512, 1024, False), True, RELU, (1024, 256, True)],
    ),
    "byol's predictor": (
        predictor(256, 1024),
        [(256, 1024, False), True, RELU, (1024, 256, True)],
    ),
    "simsiam": (
        projector(512, [2048, 2048], 2048, last_norm="plain"),
        [
            *[(512, 2048, False), True, RELU],
            *[(2048, 2048, False), True, RELU],
            *[(2048, 2048, False), False],
        ],
    ),
    "simsiam's predictor": (
        predictor(2048, 512),
        [(2048, 512, False), True, RELU, (512, 2048, True)],
    ),
    "barlow twins": (
        projector(512, [2048, 2048], 2048, bias=False),
        [(512, 2048, False), True, RELU, (2048, 2048, False), True, RELU, (2048, 2048, False)],
    ),
    "affine at the end": (
        projector(8, [], 4, last_norm="affine"),
        [(8, 4, False), True],
    ),
}


@pytest.mark.parametrize("name", HEADS)
def test_heads_as_the_papers_write_them(name):
    head, layers = HEADS[name]
    assert spelled(head) == layers


@pytest.mark.parametrize("widths", [(0, [3], 2), (3, [0], 2), (3, [], -1)])
def test_a_width_of_nothing(widths):
    with pytest.raises(InputError, match="give the head widths of at least 1; found"):
        projector(*widths)


def test_another_last_norm():
    with pytest.raises(InputError, match="'none', 'affine' or 'plain'; found 'some'"):
        projector(3, [], 2, last_norm="some")


class TestDINOHead:
    def test_logits_are_cosines_with_the_prototypes(self):
        head, h = DINOHead(6, 9, hidden=5, bottleneck=4), torch.randn(3, 6)
        z, prototypes = head.body(h), head.prototypes.weight
        expected = torch.cosine_similarity(z[:, None], prototypes[None], dim=-1)
        torch.testing.assert_close(head(h), expected)

    def test_layers_and_initial_weights(self):
        torch.manual_seed(0)
        head = DINOHead(200, 9, hidden=300, bottleneck=100)
        layers = [layer for layer in head.body if isinstance(layer, nn.Linear)]
        shapes = [(layer.in_features, layer.out_features) for layer in layers]
        assert shapes == [(200, 300), (300, 300), (300, 100)]
        assert sum(isinstance(layer, nn.GELU) for layer in head.body) == 2
        assert all(abs(layer.weight.std().item() - 0.02) < 0.001 for layer in layers)
        assert all(layer.bias.eq(0).all() for layer in layers)

    def test_batch_norms_where_asked(self):
        head = DINOHead(6, 9, hidden=5, bottleneck=4, batch_norm=True)
        assert sum(isinstance(layer, nn.BatchNorm1d) for layer in head.body) == 2
        assert head.body[0].bias is None
        assert head.body[-1].bias is not None
