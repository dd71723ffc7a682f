"""``/v1/models`` and cancelling."""

from mstar_core.serving.exchange import ModelCard

KEY, OTHER = "first-key-of-some-length", "second-key-of-some-length"


def test_the_list_has_the_model_with_what_it_takes_and_gives(rig):
    card = ModelCard(
        name="org/ears",
        capabilities=frozenset({"audio", "speech"}),
        max_context=448,
        created=17,
        traits={"languages": ["en"], "voices": ["one"]},
    )
    told = rig(card=card, limits={"max_choices": 3}).ask("/v1/models")
    (model,) = told.json()["data"]
    assert told.json()["object"] == "list"
    assert (model["id"], model["object"], model["created"]) == ("org/ears", "model", 17)
    assert model["modalities"] == {"input": ["audio", "text"], "output": ["audio", "text"]}
    assert model["limits"]["max_choices"] == 3
    assert model["limits"]["max_context"] == model["max_model_len"] == 448
    assert model["traits"] == {"languages": ["en"], "voices": ["one"]}


def test_a_model_is_found_by_its_name_even_with_a_slash(rig):
    assert rig().ask("/v1/models/tiny/one").json()["id"] == "tiny/one"


def test_another_model_is_a_404(rig):
    told = rig().ask("/v1/models/gpt-4")
    assert (told.status, told.json()["error"]["code"]) == (404, "model_not_found")


def test_before_the_model_is_known_it_is_a_503(rig):
    assert rig(card=None).ask("/v1/models").status == 503
    assert rig(card=None).ask("/v1/models/x").status == 503


class TestCancel:
    """A caller ends its own requests, by their id."""

    def ask(self, rig, link, key):
        headers = [("authorization", f"Bearer {key}")]
        server = rig(link=link, keys=[KEY, OTHER])
        return server.ask("/v1/requests/a/cancel", method="POST", headers=headers)

    def test_it_says_how_many_generations_it_ended(self, rig, standing_link):
        link = standing_link(live={"1/a": 2})
        told = self.ask(rig, link, KEY)
        assert (told.status, told.json()) == (200, {"id": "a", "cancelled": 2})
        assert link.live == {}

    def test_anothers_request_is_not_found(self, rig, standing_link):
        link = standing_link(live={"1/a": 2})
        told = self.ask(rig, link, OTHER)
        assert (told.status, told.json()["error"]["code"]) == (404, "request_not_found")
        assert link.live == {"1/a": 2}
