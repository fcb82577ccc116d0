"""The embedding endpoints as the clients of OpenAI, ollama and LangChain use them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

TEXTS = ["search_query: rivers", "search_document: The Seine is one.", "a"]


def unit_vectors(texts: list[str]) -> np.ndarray:
    from fake_embedder import END, vector

    from golem_core.embedder import unit

    return unit(np.array([vector([0, *map(ord, text), END]) for text in texts]))


def same(vectors: Any, expected: np.ndarray) -> None:
    np.testing.assert_allclose(np.array(vectors), expected, rtol=1e-6)


def test_openais_client_gets_numbers_whichever_way_it_asks(embedding) -> None:
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=f"{embedding.url}/v1", api_key="any", max_retries=0)
    usual = client.embeddings.create(model="any", input=TEXTS)  # asks for base64 unless told otherwise
    plain = client.embeddings.create(model="any", input=TEXTS, encoding_format="float")
    for answer in (usual, plain):
        same([each.embedding for each in answer.data], unit_vectors(TEXTS))
        assert [each.index for each in answer.data] == [0, 1, 2] and answer.model == "fake-embedder"
        assert answer.usage.prompt_tokens == sum(len(text) + 2 for text in TEXTS)
    for one, other in zip(usual.data, plain.data, strict=True):
        np.testing.assert_array_equal(np.float32(one.embedding), np.float32(other.embedding))
    (short,) = client.embeddings.create(model="any", input="a", dimensions=2).data
    same(short.embedding, unit_vectors(["a"])[0, :2] / np.linalg.norm(unit_vectors(["a"])[0, :2]))
    (ids,) = client.embeddings.create(model="any", input=[[0, 97, 2]]).data
    same(ids.embedding, unit_vectors(["a"])[0])


def test_openais_client_is_told_what_was_wrong(embedding) -> None:
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=f"{embedding.url}/v1", api_key="any")
    with pytest.raises(openai.BadRequestError, match="text 1 has 102 tokens, and the model takes 64") as caught:
        client.embeddings.create(model="any", input=["a", "x" * 100])
    assert caught.value.code == "context_length_exceeded"
    assert [each.id for each in client.models.list()] == ["fake-embedder"]
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="any", messages=[{"role": "user", "content": "a"}])


def test_ollamas_client_gets_vectors_by_both_endpoints(embedding) -> None:
    ollama = pytest.importorskip("ollama")
    from fake_embedder import END, vector

    client = ollama.Client(host=embedding.url)
    answer = client.embed(model="nomic", input=TEXTS)
    same(answer.embeddings, unit_vectors(TEXTS))
    assert answer.model == "nomic" and answer.prompt_eval_count == sum(len(text) + 2 for text in TEXTS)
    assert len(client.embed(model="nomic", input="x" * 100).embeddings) == 1, "what is too long is cut"
    with pytest.raises(ollama.ResponseError, match="exceeds the context length"):
        client.embed(model="nomic", input="x" * 100, truncate=False)
    assert len(client.embed(model="nomic", input="a", dimensions=2).embeddings[0]) == 2
    same(client.embeddings(model="nomic", prompt="ab").embedding, vector([0, 97, 98, END]))
    assert [each.model for each in client.list().models] == ["fake-embedder"]
    assert client.show("fake-embedder").capabilities == ["embedding"]
    assert [each.context_length for each in client.ps().models] == [64]


def test_langchains_openai_embeddings_send_texts_or_token_ids(embedding) -> None:
    package = pytest.importorskip("langchain_openai")
    model = package.OpenAIEmbeddings(
        model="any", base_url=f"{embedding.url}/v1", api_key="any", check_embedding_ctx_length=False
    )
    same(model.embed_documents(TEXTS), unit_vectors(TEXTS))
    same(model.embed_query("a"), unit_vectors(["a"])[0])


def test_langchains_ollama_embeddings(embedding) -> None:
    package = pytest.importorskip("langchain_ollama")
    model = package.OllamaEmbeddings(model="any", base_url=embedding.url)
    same(model.embed_documents(TEXTS), unit_vectors(TEXTS))
    same(model.embed_query("a"), unit_vectors(["a"])[0])
