import torch

from isotrope.encoders.heads import LinearHead, MLPHead


def test_the_head_is_a_linear_layer_and_a_tanh():
    head, h = MLPHead(6), torch.randn(4, 6)
    torch.testing.assert_close(head(h), torch.tanh(h @ head.dense.weight.T + head.dense.bias))


def test_initial_weights_are_small_normal_numbers_and_the_bias_is_zero():
    torch.manual_seed(0)
    head = MLPHead(200)
    assert abs(head.dense.weight.std().item() - 0.02) < 0.001
    assert abs(head.dense.weight.mean().item()) < 0.001
    assert head.dense.bias.eq(0).all()


def test_the_linear_head_has_no_tanh_and_its_bias_starts_as_its_weights_do():
    torch.manual_seed(0)
    head, h = LinearHead(200), torch.randn(4, 200)
    torch.testing.assert_close(head(h), h @ head.dense.weight.T + head.dense.bias)
    assert abs(head.dense.weight.std().item() - 0.006) < 0.0003
    assert abs(head.dense.bias.std().item() - 0.006) < 0.001
