import json
import logging
from itertools import pairwise

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Router, Transformer
from sentence_transformers.sentence_transformer.modules import BoW, Pooling
from transformers import BertJapaneseTokenizer

from isotrope.core.errors import InputError
from isotrope.data.text.retrieval_sets import from_pairs
from isotrope.encoders.modules import POOLINGS
from isotrope.encoders.sentence import SentenceEncoder, check_prompts
from isotrope.evaluation.retrieval import retrieval
from tests.refused import refused_setting

from .conftest import TEXTS


def assert_same(ours, theirs):
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-6)


class TestEncode:
    def test_it_equals_sentence_transformers(self, tiny):
        assert_same(tiny.encode(TEXTS), tiny.model.encode(TEXTS))

    def test_it_equals_sentence_transformers_on_pretrained_weights(self, minilm):
        assert minilm.normalizes
        texts = [*TEXTS, "word " * 400]  # beyond the 256 tokens at which this model cuts
        out = minilm.encode(texts, batch_size=3)
        assert out.dtype == np.float32
        assert_same(out, minilm.model.encode(texts))
        assert_same(np.linalg.norm(out, axis=1), 1)

    def test_the_size_of_the_batch_does_not_matter(self, tiny):
        assert_same(tiny.encode(TEXTS, batch_size=1), tiny.encode(TEXTS, batch_size=100))

    def test_distinct_texts_are_encoded_once_and_the_longest_first(self, tiny, monkeypatch):
        seen = []
        forward = tiny.forward
        monkeypatch.setattr(
            tiny, "forward", lambda **x: seen.extend(x["attention_mask"].sum(1)) or forward(**x)
        )
        out = tiny.encode(TEXTS, batch_size=2)
        assert len(seen) == len(set(TEXTS)) == len(TEXTS) - 1
        assert all(a >= b for a, b in pairwise(seen))
        np.testing.assert_array_equal(out[2], out[6])

    def test_a_long_text_makes_no_batch_of_short_texts_long(self, tiny, monkeypatch):
        masks = []
        forward = tiny.forward
        monkeypatch.setattr(
            tiny, "forward", lambda **x: masks.append(x["attention_mask"]) or forward(**x)
        )
        texts = [f"{i} {'bread ' * (i % 40)}" for i in range(100)]
        out = tiny.encode(texts, batch_size=100)
        assert max(len(mask) for mask in masks) > 1
        padding = sum(mask.numel() - int(mask.sum()) for mask in masks)
        assert padding < 0.25 * sum(mask.numel() for mask in masks)
        monkeypatch.undo()
        assert_same(out, tiny.encode(texts, batch_size=1))

    def test_modes_are_restored_and_dropout_is_off(self, tiny):
        tiny.train()
        tiny.model[1].eval()
        try:
            np.testing.assert_array_equal(tiny.encode(TEXTS), tiny.encode(TEXTS))
            assert tiny.training
            assert tiny.model[0].training
            assert not tiny.model[1].training
        finally:
            tiny.eval()

    def test_normalize_gives_unit_vectors(self, tiny):
        plain, unit = tiny.encode(TEXTS), tiny.encode(TEXTS, normalize=True)
        assert_same(unit, plain / np.linalg.norm(plain, axis=1, keepdims=True))

    def test_a_shorter_maximum_length(self, tiny):
        cut = tiny.encode(["the tall ship left the harbour"], max_length=4)
        assert_same(cut, tiny.encode(["the tall"], max_length=4))
        with pytest.raises(InputError, match=r"between 3 and 32 tokens, .*; found 0"):
            tiny.encode(["the tall ship"], max_length=0)

    def test_no_texts(self, tiny):
        assert tiny.encode([]).shape == (0, 128)
        assert tiny.encode([]).dtype == np.float32

    @pytest.mark.usefixtures("terminal")
    def test_progress_is_a_bar_on_stderr(self, tiny, capsys):
        tiny.encode(TEXTS, progress=True)
        captured = capsys.readouterr()
        assert "81/81" in captured.err  # tokens
        assert captured.out == ""
        tiny.encode(TEXTS)
        assert capsys.readouterr().err == ""

    def test_the_prompt_of_the_model_is_put_before_each_text(self, folder):
        file = folder / "config_sentence_transformers.json"
        config = json.loads(file.read_text())
        config.update(prompts={"query": "the ship "}, default_prompt_name="query")
        file.write_text(json.dumps(config))
        encoder = SentenceEncoder.load(folder)
        assert encoder.prompt == "the ship "
        assert_same(encoder.encode(TEXTS), encoder.model.encode(TEXTS))
        plain = encoder.model.encode(["the ship bread"], prompt="")
        assert_same(encoder.encode(["bread"]), plain)

    def test_what_is_not_a_text(self, tiny):
        with pytest.raises(InputError, match=r"give only texts: texts\[1\] is 3 \(int\)"):
            tiny.encode(["a", 3])
        with pytest.raises(InputError, match=r"give a list of texts, .* found the text 'a'"):
            tiny.encode("a")

    def test_a_batch_of_nothing(self, tiny):
        with pytest.raises(InputError, match="a batch size of at least 1; found 0"):
            tiny.encode(["a"], batch_size=0)


class TestTokens:
    def test_rows_are_what_sentence_transformers_feeds_its_model(self, tiny):
        rows, cut = tiny.tokenize(TEXTS, tiny.max_length)
        theirs = tiny.model.preprocess(TEXTS)
        ours = tiny.pad(rows)
        assert ours["input_ids"].equal(theirs["input_ids"])
        assert ours["attention_mask"].equal(theirs["attention_mask"])
        assert cut == 1

    def test_cut_rows_keep_their_special_tokens(self, tiny):
        rows, cut = tiny.tokenize(TEXTS, 5)
        assert max(map(len, rows)) == 5
        assert all(row[-1] == tiny.tokenizer.sep_token_id for row in rows)
        assert cut == sum(len(row) > 5 for row in tiny.tokenize(TEXTS, 32)[0])
        # what was asked once leaves no trace in the tokenizer
        assert tiny.tokenize(TEXTS, 32)[1] == 1

    def test_nothing(self, tiny):
        assert tiny.tokenize([], 8) == ([], 0)
        assert tiny.pad([])["input_ids"].shape == (0, 0)
        assert tiny.pad([[]])["input_ids"].shape == (1, 0)

    @pytest.mark.parametrize("length", [0, 2, 33])
    def test_a_length_the_model_cannot_take(self, tiny, length):
        with pytest.raises(InputError, match=rf"between 3 and 32 tokens, .*; found {length}"):
            tiny.tokenize(["a"], length)

    def test_rows_may_be_arrays(self, tiny):
        rows = [[2, 7, 3], [2, 3], [2, 9, 8, 3]]
        ours, arrays = tiny.pad(rows), tiny.pad([np.array(r, dtype=np.uint16) for r in rows])
        assert ours["input_ids"].tolist() == [[2, 7, 3, 0], [2, 3, 0, 0], [2, 9, 8, 3]]
        assert ours["attention_mask"].tolist() == [[1, 1, 1, 0], [1, 1, 0, 0], [1, 1, 1, 1]]
        assert ours["input_ids"].dtype == ours["attention_mask"].dtype == torch.int64
        assert arrays["input_ids"].equal(ours["input_ids"])

    def test_padding_on_the_side_of_the_tokenizer(self, tiny, monkeypatch):
        monkeypatch.setattr(tiny.tokenizer, "padding_side", "left")
        padded = tiny.pad([[2, 7, 3], [2, 3]])
        assert padded["input_ids"].tolist() == [[2, 7, 3], [0, 2, 3]]
        assert padded["attention_mask"].tolist() == [[1, 1, 1], [0, 1, 1]]


class TestForward:
    def test_it_stops_before_normalize(self, minilm):
        rows, _ = minilm.tokenize(TEXTS[:3], 32)
        with torch.no_grad():
            h = minilm(**minilm.pad(rows))
        assert (h.norm(dim=1) > 1.5).all()
        assert_same(torch.nn.functional.normalize(h).numpy(), minilm.encode(TEXTS[:3]))

    def test_padding_does_not_matter(self, tiny):
        rows, _ = tiny.tokenize(["bread", TEXTS[3]], 32)
        with torch.no_grad():
            assert_same(tiny(**tiny.pad(rows))[:1], tiny(**tiny.pad(rows[:1])))

    def test_every_trainable_parameter_gets_a_gradient(self, tiny):
        rows, _ = tiny.tokenize(TEXTS, 32)
        tiny(**tiny.pad(rows)).square().sum().backward()
        without = [n for n, p in tiny.named_parameters() if p.requires_grad and p.grad is None]
        tiny.zero_grad()
        assert without == []
        frozen = [name for name, p in tiny.named_parameters() if not p.requires_grad]
        assert all("pooler" in name for name in frozen)

    def test_training_mode_gives_two_views(self, tiny):
        batch = tiny.pad(tiny.tokenize(TEXTS, 32)[0])
        tiny.train()
        try:
            assert (tiny(**batch) - tiny(**batch)).abs().max() > 0.01
        finally:
            tiny.eval()

    def test_modules_after_the_pooling_are_part_of_it(self, tiny):
        dense, normalize = Dense(128, 16), Normalize()
        model = SentenceTransformer(modules=[*tiny.model, dense, normalize], device="cpu")
        encoder = SentenceEncoder(model.eval(), "dense")
        assert (encoder.dimension, encoder.normalizes) == (16, True)
        assert_same(encoder.encode(TEXTS), model.encode(TEXTS))
        batch = encoder.pad(encoder.tokenize(TEXTS, 32)[0])
        h = tiny(**batch)
        torch.testing.assert_close(encoder(**batch), torch.tanh(dense.linear(h)))


class TestPooling:
    @pytest.mark.parametrize("name", POOLINGS)
    def test_each_name(self, folder, name):
        encoder = SentenceEncoder.load(folder, pooling=name)
        assert encoder.pooling == POOLINGS[name]
        batch = encoder.pad(encoder.tokenize(TEXTS, 32)[0])
        with torch.no_grad():
            tokens = encoder.model[0](dict(batch))["token_embeddings"]
            h = encoder(**batch)
        rows = [x[m.bool()] for x, m in zip(tokens, batch["attention_mask"], strict=True)]
        positions = [torch.arange(1, len(x) + 1)[:, None] for x in rows]
        expected = {
            "mean": [x.mean(0) for x in rows],
            "cls": [x[0] for x in rows],
            "max": [x.max(0).values for x in rows],
            "mean_sqrt_len_tokens": [x.sum(0) / len(x) ** 0.5 for x in rows],
            "weightedmean": [
                (x * p).sum(0) / p.sum() for x, p in zip(rows, positions, strict=True)
            ],
            "lasttoken": [x[-1] for x in rows],
        }[POOLINGS[name]]
        torch.testing.assert_close(h, torch.stack(expected))

    def test_an_unknown_name(self, folder):
        with pytest.raises(
            InputError,
            match=r"no pooling 'maen' \(did you mean 'mean'\?\); known: mean, avg",
        ):
            SentenceEncoder.load(folder, pooling="maen")

    def test_several_poolings_joined(self, tiny, tmp_path):
        model = SentenceTransformer(
            modules=[tiny.model[0], Pooling(128, ("cls", "mean"))], device="cpu"
        )
        encoder = SentenceEncoder(model, "both")
        assert (encoder.pooling, encoder.dimension) == ("cls+mean", 256)
        assert_same(encoder.encode(TEXTS), model.encode(TEXTS))
        encoder.save(tmp_path / "both")
        with pytest.raises(InputError, match=r"joins several poolings, .* need all poolings"):
            SentenceEncoder.load(tmp_path / "both", pooling="mean")

    def test_no_pooling_at_all(self, tiny, tmp_path):
        model = SentenceTransformer(modules=[tiny.model[0]], device="cpu")
        model.save_pretrained(str(tmp_path / "none"), create_model_card=False)
        with pytest.raises(
            InputError, match=r"add a pooling module to .*, which gives a vector for each token"
        ):
            SentenceEncoder.load(tmp_path / "none")
        with pytest.raises(InputError, match=r"leave out the pooling 'cls': .* has no pooling"):
            SentenceEncoder.load(tmp_path / "none", pooling="cls")


class TestSave:
    def test_plain_sentence_transformers_loads_it(self, tiny, tmp_path):
        tiny.save(tmp_path / "model")
        theirs = SentenceTransformer(str(tmp_path / "model"), device="cpu")
        assert_same(theirs.encode(TEXTS), tiny.encode(TEXTS))
        assert theirs.max_seq_length == tiny.max_length == 32

    def test_plain_sentence_transformers_loads_the_pretrained_model(self, minilm, tmp_path):
        minilm.save(tmp_path / "model", card="# Numbers\n")
        theirs = SentenceTransformer(str(tmp_path / "model"), device="cpu")
        assert_same(theirs.encode(TEXTS), minilm.encode(TEXTS))
        assert theirs.max_seq_length == minilm.max_length == 256
        assert (tmp_path / "model" / "README.md").read_text() == "# Numbers\n"

    def test_nothing_is_missing_when_others_load_it(self, tiny, tmp_path):
        tiny.save(tmp_path / "model")
        seen = _Messages()
        logging.getLogger("transformers").addHandler(seen)
        try:
            SentenceTransformer(str(tmp_path / "model"), device="cpu")
        finally:
            logging.getLogger("transformers").removeHandler(seen)
        assert seen.texts == []

    def test_what_transformers_takes_is_passed_on(self, tiny, folder):
        options = {"dtype": torch.bfloat16, "attn_implementation": "eager"}
        encoder = SentenceEncoder.load(folder, device="cpu", model_kwargs=options)
        network = encoder.model[0].model
        assert (network.dtype, network.config._attn_implementation) == (torch.bfloat16, "eager")
        assert tiny.model[0].model.config._attn_implementation == "sdpa"
        found, expected = (e.encode(TEXTS[:2], normalize=True) for e in (encoder, tiny))
        assert found.dtype == np.float32
        assert ((found * expected).sum(axis=1) > 0.999).all()
        assert (found != expected).any()

    def test_it_loads_again_here(self, tiny, folder):
        again = SentenceEncoder.load(str(folder))
        np.testing.assert_array_equal(again.encode(TEXTS), tiny.encode(TEXTS))
        assert again.name == str(folder)
        assert not again.training

    def test_the_folder_says_what_it_is_and_nothing_of_this_machine(self, folder, tmp_path):
        assert (
            "Maps a text to 128 numbers (pooling: mean; at most 32 tokens; not normalised)"
            in (folder / "README.md").read_text()
        )
        assert (folder / "model.safetensors").exists()
        assert not list(folder.rglob("*.bin"))
        for file in folder.rglob("*.json"):
            assert str(tmp_path) not in file.read_text()
            assert "/tmp" not in file.read_text()

    def test_an_older_folder_is_replaced(self, tiny, folder):
        (folder / "old.txt").write_text("old")
        tiny.save(folder, card="new")
        assert not (folder / "old.txt").exists()
        assert (folder / "README.md").read_text() == "new"

    def test_a_failure_leaves_nothing_behind(self, tiny, tmp_path, monkeypatch):
        def fail(path, **settings):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(tiny.model, "save_pretrained", fail)
        with pytest.raises(InputError, match=r"cannot write .*no space left on device"):
            tiny.save(tmp_path / "model")
        assert list(tmp_path.iterdir()) == []


class _Messages(logging.Handler):
    def __init__(self):
        super().__init__(logging.WARNING)
        self.texts = []

    def emit(self, record):
        self.texts.append(record.getMessage())


class TestLoad:
    def test_the_pretrained_model(self, minilm):
        assert (minilm.dimension, minilm.max_length, minilm.pooling) == (384, 256, "mean")
        assert minilm.name == "all-MiniLM-L6-v2"
        assert minilm.device == torch.device("cpu")

    def test_a_plain_transformers_folder_gets_mean_pooling_in_float32(self, tiny, tmp_path):
        bert = tiny.model[0].model
        state = {k: v.half() for k, v in bert.state_dict().items() if "pooler" not in k}
        tiny.tokenizer.save_pretrained(tmp_path)
        bert.config.save_pretrained(tmp_path)
        save_file(state, tmp_path / "model.safetensors", metadata={"format": "pt"})
        encoder = SentenceEncoder.load(tmp_path, device="cpu")
        assert (encoder.pooling, encoder.normalizes) == ("mean", False)
        assert {p.dtype for p in encoder.parameters()} == {torch.float32}
        np.testing.assert_allclose(encoder.encode(TEXTS), tiny.encode(TEXTS), atol=0.01)
        # the pooler, which is not in the file, is the same each time
        again = SentenceEncoder.load(tmp_path).state_dict()
        assert all(value.equal(again[key]) for key, value in encoder.state_dict().items())

    def test_the_masked_language_model_of_the_shared_data(self, shared_data):
        encoder = SentenceEncoder.load(shared_data / "standin-mlm", device="cpu")
        assert (encoder.dimension, encoder.max_length, encoder.pooling) == (384, 512, "mean")
        assert_same(encoder.encode(TEXTS), encoder.model.encode(TEXTS))

    def test_it_says_nothing_and_leaves_the_random_state_alone(self, folder, capfd):
        (folder / "1_Pooling" / "config.json").exists()
        state = load_file(folder / "model.safetensors")
        kept = {key: value for key, value in state.items() if "pooler" not in key}
        save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
        torch.manual_seed(5)
        before = torch.get_rng_state()
        SentenceEncoder.load(folder)
        assert before.equal(torch.get_rng_state())
        captured = capfd.readouterr()
        assert captured.out + captured.err == ""
        assert logging.getLogger("transformers").handlers

    def test_weights_that_are_not_all_there(self, folder):
        config = json.loads((folder / "config.json").read_text())
        config["num_hidden_layers"] = 3
        (folder / "config.json").write_text(json.dumps(config))
        with pytest.raises(InputError, match=r"lacks weights that its config\.json needs"):
            SentenceEncoder.load(folder)

    @pytest.mark.parametrize(
        "change", [{"hidden_size": 64}, {"model_type": "nosuch"}, {"num_attention_heads": 7}]
    )
    def test_a_configuration_of_another_model(self, folder, change):
        config = json.loads((folder / "config.json").read_text()) | change
        (folder / "config.json").write_text(json.dumps(config))
        with pytest.raises(
            InputError, match=r"^.*is not a model that can be loaded: .*$"
        ) as caught:
            SentenceEncoder.load(folder)
        assert "\n" not in str(caught.value)

    def test_a_tokenizer_that_is_none(self, folder):
        (folder / "tokenizer.json").write_text("{}")
        with pytest.raises(InputError, match="is not a model that can be loaded"):
            SentenceEncoder.load(folder)

    def test_code_that_comes_with_a_model_is_not_run(self, folder):
        modules = json.loads((folder / "modules.json").read_text())
        modules[1]["type"] = "own_code.Pooling"
        (folder / "own_code.py").write_text("raise SystemExit('was run')\n")
        (folder / "modules.json").write_text(json.dumps(modules))
        with pytest.raises(InputError, match="is not a model that can be loaded"):
            SentenceEncoder.load(folder)

    def test_a_tokenizer_of_another_model(self, tiny, folder):
        other = SentenceEncoder.scratch([f"word{chr(97 + i)}{i} other" for i in range(26)])
        assert len(other.tokenizer) != len(tiny.tokenizer)
        small, large = sorted((tiny, other), key=lambda e: len(e.tokenizer))
        small.save(folder)
        large.tokenizer.save_pretrained(folder)
        with pytest.raises(InputError, match=r"save .* with the tokenizer that belongs to it"):
            SentenceEncoder.load(folder)

    @pytest.mark.parametrize("device", ["cuda:63", "mps", "meta"])
    def test_a_device_that_is_not_there(self, folder, device):
        if device == "mps" and torch.backends.mps.is_available():
            pytest.skip("this machine has MPS")
        with refused_setting("device", value=device):
            SentenceEncoder.load(folder, device=device)

    def test_a_device_that_does_not_exist(self, folder):
        with refused_setting("device", value="gpu"):
            SentenceEncoder.load(folder, device="gpu")


class TestModelsThatDoNotFit:
    def test_no_transformer_first(self, tiny):
        words = BoW(vocab=["river", "boat"])
        model = SentenceTransformer(modules=[words], device="cpu")
        with pytest.raises(InputError, match="the first module of x is BoW"):
            SentenceEncoder(model, "x")

    def test_not_only_text(self, tiny, monkeypatch):
        both = {**tiny.model[0].modality_config, "image": {}}
        monkeypatch.setattr(tiny.model[0], "modality_config", both)
        with pytest.raises(
            InputError, match=r"give an encoder of plain text.*: x takes text, image"
        ):
            SentenceEncoder(tiny.model, "x")

    def test_cut_embeddings(self, tiny, monkeypatch):
        monkeypatch.setattr(tiny.model, "truncate_dim", 16)
        with pytest.raises(InputError, match="of x, because this setting cuts the embeddings"):
            SentenceEncoder(tiny.model, "x")

    def test_a_tokenizer_that_runs_in_python(self, tiny, tmp_path):
        (tmp_path / "vocab.txt").write_text(
            "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
        )
        tiny.model[0].model.save_pretrained(tmp_path / "m")
        words = BertJapaneseTokenizer(
            str(tmp_path / "vocab.txt"),
            word_tokenizer_type="basic",
            subword_tokenizer_type="wordpiece",
        )
        words.save_pretrained(tmp_path / "m")
        with pytest.raises(InputError, match=r"fast tokenizer .* is BertJapaneseTokenizer, which"):
            SentenceEncoder.load(tmp_path / "m")

    @pytest.mark.parametrize(
        ("setting", "value"),
        [
            ("processing_kwargs", {"text": {"add_special_tokens": False}}),
            ("query_length", 8),
            ("document_length", 8),
        ],
    )
    def test_settings_of_the_tokenizer_that_are_not_read(self, folder, tmp_path, setting, value):
        first = Transformer(str(folder), **{setting: value})
        model = SentenceTransformer(modules=[first, Pooling(128, "mean")], device="cpu")
        model.save_pretrained(str(tmp_path / "m"), create_model_card=False)
        with pytest.raises(InputError, match=f"remove {setting} from sentence_bert_config.json"):
            SentenceEncoder.load(tmp_path / "m")

    @pytest.mark.parametrize("first", [False, True])
    def test_queries_and_documents_with_modules_of_their_own(self, tiny, folder, tmp_path, first):
        body = [Transformer(str(folder)), Pooling(128, "mean")]
        heads = [body, body] if first else [[Dense(128, 8)], [Dense(128, 8)]]
        router = Router.for_query_document(*heads)
        model = SentenceTransformer(modules=[router] if first else [*body, router], device="cpu")
        model.save_pretrained(str(tmp_path / "m"), create_model_card=False)
        with pytest.raises(InputError, match=r"without a Router: .* embeds query and document in"):
            SentenceEncoder.load(tmp_path / "m")
        with pytest.raises(InputError, match="without a Router: this model embeds"):
            retrieval(model, from_pairs([("a boat", "the ship"), ("rain", "a cloud")]))

    def test_token_types_that_are_not_all_0(self, folder):
        file = folder / "tokenizer.json"
        tokenizer = json.loads(file.read_text())
        tokenizer["post_processor"]["single"][0]["SpecialToken"]["type_id"] = 1  # of [CLS]
        file.write_text(json.dumps(tokenizer))
        encoder = SentenceEncoder.load(folder)  # its model is not given the types
        assert_same(encoder.encode(TEXTS), encoder.model.encode(TEXTS))
        file = folder / "tokenizer_config.json"
        names = {"model_input_names": ["input_ids", "token_type_ids", "attention_mask"]}
        file.write_text(json.dumps(json.loads(file.read_text()) | names))
        with pytest.raises(
            InputError, match=r"token_type_ids .* sets token_type_ids to \[1, 0, 0\]"
        ):
            SentenceEncoder.load(folder)

    def test_a_prompt_outside_the_pooling(self, tiny, monkeypatch):
        monkeypatch.setattr(tiny.model[1], "include_prompt", False)
        bare = SentenceEncoder(tiny.model, "x")
        check_prompts(bare, "", "")
        with pytest.raises(InputError, match="include_prompt to true in the pooling of x"):
            check_prompts(bare, "", "passage: ")
        monkeypatch.setattr(tiny.model, "prompts", {"query": "find: "})
        asked = SentenceEncoder(tiny.model, "x")
        data = from_pairs([("one", "two"), ("three", "four")])
        assert retrieval(asked, data, prompts=("", "")).metrics
        with pytest.raises(InputError, match="include_prompt to true in the pooling of x"):
            retrieval(asked, data)  # which puts the prompt of queries there
        monkeypatch.setattr(tiny.model, "default_prompt_name", "query")
        with pytest.raises(InputError, match="include_prompt to true in the pooling of x"):
            SentenceEncoder(tiny.model, "x")


def test_a_saved_tokenizer_does_not_cut_as_its_last_call_did(tmp_path):
    texts = ["a small boat on a wide river", "the mill by the river"]
    encoder = SentenceEncoder.scratch(texts, vocabulary=100)
    backend = encoder.tokenizer.backend_tokenizer
    encoder.tokenize(texts, max_length=4)
    encoder.save(tmp_path / "first")
    saved = json.loads((tmp_path / "first" / "tokenizer.json").read_text())
    assert (saved["truncation"], saved["padding"]) == (None, None)
    backend.enable_truncation(7, strategy="only_first")
    backend.enable_padding(pad_id=0, pad_token="[PAD]", length=9)
    encoder = SentenceEncoder(encoder.model, "x")  # as a file may have it
    encoder.encode(["a small boat " * 200])
    encoder.save(tmp_path / "second")
    saved = json.loads((tmp_path / "second" / "tokenizer.json").read_text())
    assert saved["truncation"]["max_length"] == 7
    assert saved["truncation"]["strategy"] == "OnlyFirst"
    assert saved["padding"]["strategy"] == {"Fixed": 9}


def test_a_fingerprint_is_of_what_decides_the_embeddings(tmp_path):
    texts = ["a small boat on a wide river", "the mill by the river"]
    encoder = SentenceEncoder.scratch(texts)
    first = encoder.fingerprint()
    encoder.encode(["a small boat " * 200])  # leaves a truncation in the tokenizer
    encoder.save(tmp_path / "elsewhere")
    saved = SentenceEncoder.load(tmp_path / "elsewhere", device="cpu")
    assert saved.fingerprint() == encoder.fingerprint() == first
    others = [
        SentenceEncoder.load(tmp_path / "elsewhere", device="cpu", pooling="cls"),
        SentenceEncoder.scratch(texts, max_length=64),
        SentenceEncoder.scratch([*texts, "another word"]),
    ]
    with torch.no_grad():
        next(p for p in encoder.parameters() if p.ndim == 1)[0] += 1e-6
    assert len({first, encoder.fingerprint(), *(other.fingerprint() for other in others)}) == 5
    saved.tokenizer.truncation_side = "left"
    assert saved.fingerprint() != first
