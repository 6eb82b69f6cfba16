import torch

from isotrope.encoders.heads import MLPHead


def test_the_head_is_a_linear_layer_and_a_tanh():
    head, h = MLPHead(6), torch.randn(4, 6)
    torch.testing.assert_close(head(h), torch.tanh(h @ head.dense.weight.T + head.dense.bias))


def test_initial_weights_are_small_normal_numbers_and_the_bias_is_zero():
    head = MLPHead(200, generator=torch.Generator().manual_seed(0))
    assert abs(head.dense.weight.std().item() - 0.02) < 0.001
    assert abs(head.dense.weight.mean().item()) < 0.001
    assert head.dense.bias.eq(0).all()
    assert head.dense.weight.equal(
        MLPHead(200, generator=torch.Generator().manual_seed(0)).dense.weight
    )
