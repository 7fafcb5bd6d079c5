"""Markdown and JSON on pages become text nodes only."""

from lockstitch.server.pages.common.content import json_tokens
from lockstitch.server.pages.common.markdown import markdown_blocks


def test_markdown_links_only_to_http():
    text = "[a](javascript:alert(1)) [b](https://b.example) **x** <b>y</b>\n\n1. one\n2. two\n\n```\n<i>\n```"
    blocks = markdown_blocks(text)
    links = [href for block in blocks for kind, _, href in block.all_inlines() if kind == "link"]
    assert links == ["https://b.example"]
    assert [block.kind for block in blocks] == ["p", "ol", "pre"]
    assert "".join(part for _, part, _ in blocks[0].inlines).count("<b>y</b>") == 1


def test_json_pieces_contain_the_whole_value():
    value = {"a": [1, {"b": "<script>"}], "big": 2**70, "deep": "x" * 200, "none": None, "empty": {}}
    rendered = "".join(text for _, text in json_tokens(value))
    assert "".join(
        rendered.split()
    ) == '{"a":[1,{"b":"<script>"}],"big":1180591620717411303424,"deep":"' + "x" * 200 + ('","none":null,"empty":{}}')
    deep: list[object] = []
    for _ in range(200):
        deep = [deep]
    assert "".join("".join(text for _, text in json_tokens(deep)).split()) == "[" * 201 + "]" * 201
    assert sum(len(text) for _, text in json_tokens("x" * 10**6, 100)) < 200
