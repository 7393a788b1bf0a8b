#!/usr/bin/env python3
"""Writes models.json: prices, limits and inputs of the models of the main providers.

The facts come from the file model_prices_and_context_window_backup.json of the Python package `litellm` (MIT License,
Copyright 2023 Berri AI), at the version below, and from corrections.json beside this program, which wins.

    pip download --no-deps litellm==VERSION
    python3 generate.py litellm-VERSION-*.whl 2026-11-26
"""

import json
import sys
import zipfile
from decimal import Decimal
from pathlib import Path

VERSION = "1.110.2"
SOURCE = "litellm/model_prices_and_context_window_backup.json"
# Names of the providers there, and whether a name selects the provider's own service here.
PROVIDERS = {
    "openai": True,
    "anthropic": True,
    "gemini": True,
    "deepseek": False,
    "mistral": False,
    "moonshot": False,
    "xai": False,
    "zai": False,
}
UNWANTED = ("ft:", "audio", "tts", "image", "realtime", "transcribe", "search", "deep-research", "lyria", "robotics",
            "computer-use", "omni", "live", "embedding", "learnlm", "gemma")


def price(per_token):
    """Returns a price in USD per million tokens as an exact decimal."""
    return format((Decimal(repr(per_token)) * 1_000_000).normalize(), "f")


def prices(model, ending=""):
    """Returns the prices of a tier. The ending is that of the keys of the tier."""
    names = {
        "input": "input_cost_per_token",
        "output": "output_cost_per_token",
        "cache_read": "cache_read_input_token_cost",
        "cache_write": "cache_creation_input_token_cost",
    }
    found = {ours: model.get(theirs + ending) for ours, theirs in names.items()}
    long_writes = (model.get(f"{names['cache_write']}_above_{time}{ending}") for time in ("1hr", "12hr"))
    found["long_cache_write"] = next((value for value in long_writes if value is not None), None)
    return {name: price(value) for name, value in found.items() if value is not None}


def long_prices(model):
    """Returns the prices of long prompts, and from which length on they apply."""
    for key in model:
        ending = key.removeprefix("input_cost_per_token_above_")
        tokens = ending.removesuffix("k_tokens")
        if ending != key and tokens.isdigit():
            return {"above": int(tokens) * 1000, **prices(model, f"_above_{ending}")}
    return None


def provider(name, model):
    """Returns the API of the provider's own service."""
    vendor = model["litellm_provider"]
    if not PROVIDERS[vendor]:
        return None
    return "openai-responses" if vendor == "openai" and model.get("supports_reasoning") else vendor


def cache(model):
    """Returns how the service caches prompts, and from how many tokens on."""
    vendor = model["litellm_provider"]
    if not model.get("supports_prompt_caching"):
        return None
    if vendor == "anthropic":
        rule, least = "marks", 1024
    elif model.get("supports_prompt_cache_breakpoint"):
        rule, least = "breakpoints", 1024
    else:
        rule, least = "prefix", 4096 if vendor == "gemini" else 1024
    return {"rule": rule, "min_tokens": int(model.get("prompt_cache_min_tokens", least))}


def window(model):
    """Returns the context window, and the limit of requests if that is less."""
    most_input = int(model["max_input_tokens"])
    total = most_input + int(model.get("max_output_tokens") or 0)
    # For OpenAI's reasoning models, the source names the limit of requests; requests and answers share the window.
    if model["litellm_provider"] == "openai" and total in (400_000, 1_050_000):
        return total, most_input
    return most_input, None


def rejected_params(model):
    """Returns the parameters that the model rejects."""
    return ["temperature", "top_p", "top_k"] if model.get("supports_sampling_params") is False else None


def entry(name, model):
    inputs = ["text"]
    if model.get("supports_vision"):
        inputs.append("image")
    if model.get("supports_pdf_input"):
        inputs.append("pdf")
    if model.get("supports_audio_input"):
        inputs.append("audio")
    context_window, max_input_tokens = window(model)
    result = {
        "name": name,
        "provider": provider(name, model),
        "context_window": context_window,
        "max_input_tokens": max_input_tokens,
        "max_output_tokens": int(model.get("max_output_tokens") or 0) or None,
        "rejected_params": rejected_params(model),
        "input": inputs,
        "prices": prices(model),
        "long_prices": long_prices(model),
        "cache": cache(model),
    }
    return {key: value for key, value in result.items() if value is not None}


def main(wheel, date):
    here = Path(__file__).parent
    with zipfile.ZipFile(wheel) as archive:
        source = json.loads(archive.read(SOURCE))
    models = {}
    for key, model in source.items():
        vendor = model.get("litellm_provider")
        name = key.removeprefix(f"{vendor}/")
        if vendor not in PROVIDERS or model.get("mode") not in ("chat", "responses") or "/" in name:
            continue
        if any(part in name for part in UNWANTED) or model.get("deprecation_date", "9") < date:
            continue
        if "input_cost_per_token" in model and "output_cost_per_token" in model and model.get("max_input_tokens"):
            models.setdefault(name, entry(name, model))
    for name, correction in json.loads((here / "corrections.json").read_text()).items():
        models[name] = {**models.get(name, {"name": name}), **correction}
    lines = ",\n".join(json.dumps(models[name]) for name in sorted(models))
    text = f'{{"date": "{date}", "source": "litellm {VERSION}", "models": [\n{lines}\n]}}\n'
    (here / "models.json").write_text(text)
    print(f"{len(models)} models, {len(text)} bytes")


if __name__ == "__main__":
    main(*sys.argv[1:])
