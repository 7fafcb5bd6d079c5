"""Who serves a model, by one name each.

Conventions, SDKs and frameworks name them differently; the names here are those that prices are looked up by, and two
spans of one model call are known by the provider's name and the response's id, so both must say the same.
"""

from typing import Any

_NAMES = {
    "amazon": "aws",
    "amazon_bedrock": "aws",
    "aws.bedrock": "aws",
    "aws_bedrock": "aws",
    "bedrock": "aws",
    "bedrock_converse": "aws",
    "az.ai.inference": "azure",
    "az.ai.openai": "azure",
    "azure.ai.inference": "azure",
    "azure.ai.openai": "azure",
    "azure_ai": "azure",
    "azure_openai": "azure",
    "fireworks_ai": "fireworks",
    "fireworks-ai": "fireworks",
    "gcp.gemini": "google",
    "gcp.gen_ai": "google",
    "gcp.vertex_ai": "google",
    "gemini": "google",
    "google-gla": "google",
    "google-vertex": "google",
    "google_genai": "google",
    "google_vertexai": "google",
    "vertex_ai": "google",
    "vertexai": "google",
    "mistral_ai": "mistral",
    "mistralai": "mistral",
    "moonshot": "moonshotai",
    "together_ai": "together",
    "togetherai": "together",
    "x_ai": "x-ai",
    "xai": "x-ai",
}

# They stand where a provider should, and serve nothing.
_FRAMEWORKS = frozenset(
    {
        "_other",
        "agno",
        "autogen",
        "crewai",
        "haystack",
        "langchain",
        "langgraph",
        "litellm",
        "llama_index",
        "llamaindex",
        "openai_agents",
        "pydantic-ai",
        "pydantic_ai",
        "semantic_kernel",
        "smolagents",
        "traceloop",
        "unknown",
    }
)


def provider_name(*said: Any) -> str | None:
    """The first of these that names a provider."""
    for word in said:
        if isinstance(word, str) and (name := word.strip().lower()) and name not in _FRAMEWORKS:
            return _NAMES.get(name, name)
    return None
