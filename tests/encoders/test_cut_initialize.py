import copy
import math

import pytest
import torch
from torch import nn

from isotrope.core.errors import InputError
from isotrope.encoders import ImageEncoder, MLPHead, cut_initialize
from isotrope.encoders.cut_initialize import first_turn
from isotrope.encoders.heads import DINOHead, projector


def parameters(module):
    return {name: value.detach().clone() for name, value in module.named_parameters()}


def divided(module, c, **choice):
    """Which parameters were divided by c; the others must be as before."""
    before = parameters(module)
    count = cut_initialize(module, c, **choice)
    found = set()
    for name, value in parameters(module).items():
        if not torch.equal(value, before[name]):
            torch.testing.assert_close(value, before[name] / c)
            found.add(name)
    return found, count


def test_the_weights_of_layers_and_nothing_else():
    head = projector(6, [5], 4)
    assert divided(head, 3) == ({"0.weight", "3.weight"}, 2)


def test_all_parameters_as_in_the_released_code():
    head = projector(6, [5], 4)
    with torch.no_grad():
        head[1].bias.fill_(0.5)
    buffers = copy.deepcopy(dict(head.named_buffers()))
    assert divided(head, 9, what="all") == (set(parameters(head)), 5)
    assert all(torch.equal(value, buffers[name]) for name, value in head.named_buffers())


def test_a_resnet_by_its_kernels():
    encoder = ImageEncoder.build("resnet9", width=4, seed=0)
    found, count = divided(encoder, 3)
    kernels = {name for name, value in encoder.named_parameters() if value.ndim == 4}
    assert found == kernels
    assert count == len(kernels) == 12
    assert cut_initialize(encoder, 3, what="all") == 36


def test_a_vision_transformer_but_for_tokens_positions_and_norms():
    encoder = ImageEncoder.build("vit-tiny", width=12, seed=0)
    found, _ = divided(encoder, 9)
    left = set(parameters(encoder)) - found
    assert "model.embeddings.patch_embeddings.projection.weight" in found
    assert {"model.embeddings.cls_token", "model.embeddings.position_embeddings"} < left
    assert all(name.endswith(("bias", "token", "embeddings")) or "norm" in name for name in left)


def test_heads_of_text_and_of_dino():
    assert divided(MLPHead(5), 3) == ({"dense.weight"}, 1)
    head, h = DINOHead(6, 7, hidden=5, bottleneck=4), torch.randn(3, 6)
    assert len(divided(head, 3)[0]) == 4
    before = head(h)
    assert cut_initialize(head.prototypes, 3) == 1
    torch.testing.assert_close(head(h), before)  # only their directions count


def test_a_sentence_encoder_with_its_embeddings(tiny):
    encoder = copy.deepcopy(tiny)
    found, count = divided(encoder, 3)
    assert count == len(found)
    assert any(name.endswith("word_embeddings.weight") for name in found)
    assert not any("LayerNorm" in name for name in found)
    assert cut_initialize(encoder, 3, what="all") == len(parameters(encoder))


def test_what_layers_share_is_divided_once():
    a, b = nn.Linear(4, 4), nn.Linear(4, 4)
    b.weight = a.weight
    before = a.weight.detach().clone()
    assert cut_initialize(nn.Sequential(a, b), 2) == 1
    assert torch.equal(b.weight, before / 2)


def test_one_changes_nothing_and_a_half_makes_larger():
    layer = nn.Linear(3, 2)
    before = layer.weight.detach().clone()
    cut_initialize(layer, 1, what="all")
    assert torch.equal(layer.weight, before)
    cut_initialize(layer, 0.5)
    assert torch.equal(layer.weight, 2 * before)
    assert layer.weight.requires_grad


@pytest.mark.parametrize("c", [0, -3, float("nan"), float("inf")])
def test_a_constant_that_is_none(c):
    with pytest.raises(InputError, match="give a finite cut-constant above 0; found"):
        cut_initialize(nn.Linear(2, 2), c)


def test_another_word():
    with pytest.raises(InputError, match="set `what` to 'weights' or 'all'; found 'biases'"):
        cut_initialize(nn.Linear(2, 2), 3, what="biases")


def test_the_name_is_the_function_whatever_was_imported_before():
    import isotrope.encoders
    import isotrope.encoders.cut_initialize

    assert isotrope.encoders.cut_initialize is cut_initialize


def test_a_cut_turns_the_first_step_by_its_square():
    """A norm behind the layer: the gradient is orthogonal to the weights and inverse to them."""
    turns = []
    for c in (1.0, 3.0):
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(5, 4, bias=False), nn.BatchNorm1d(4, eps=1e-12))
        cut_initialize(module, c)
        module(torch.randn(8, 5)).pow(3).sum().backward()
        turns.append(math.tan(first_turn(module, 0.01)))
    assert turns[1] == pytest.approx(9 * turns[0], rel=1e-3)
    assert first_turn(nn.Linear(2, 2), 1.0) == 0.0, "nothing has a gradient"
