"""What people know of each family, for the table of docs/models.md."""

MODELS = {
    "llama": "Llama 2 and 3, SmolLM2, Mistral 7B and Nemo, MiniCPM5, Falcon3, Yi, R1-Distill-Llama",
    "granite": "Granite 3.x, 4.0 350M and 1B, 4.1",
    "minicpm": "MiniCPM",
    "mistral3": "Ministral 3, Mistral Small 3.x, Devstral",
    "smollm3": "SmolLM3",
    "olmo2": "OLMo 2, OLMo 3",
    "exaone4": "EXAONE 4.0",
    "exaone": "EXAONE 3.5",
    "hunyuan-dense": "Hunyuan 0.5B to 7B, HY-MT",
    "maincoder": "Maincoder",
    "ernie4_5": "ERNIE 4.5 0.3B",
    "seed_oss": "Seed-OSS",
    "glm4": "GLM-4-9B-0414, GLM-Z1-9B, GLM-4.6V-Flash (text)",
    "gemma": "Gemma",
    "gemma2": "Gemma 2",
    "gemma3": "Gemma 3 (text)",
    "qwen2": "Qwen2, Qwen2.5, R1-Distill-Qwen",
    "qwen3": "Qwen3, dense; Bonsai",
    "qwen2vl": "Qwen2-VL, Qwen2.5-VL (text)",
    "qwen3vl": "Qwen3-VL, dense (text)",
    "phi3": "Phi-3, Phi-3.5, Phi-4, Phi-4 mini",
    "apertus": "Apertus 8B",
    "arcee": "AFM-4.5B",
    "nanbeige": "Nanbeige4.2-3B",
    "nemotron": "Minitron 4B and 8B",
    "starcoder2": "StarCoder2",
    "stablelm": "StableLM 2",
    "phi2": "Phi-2",
    "command-r": "Command R",
    "cohere2": "Command R7B, Tiny Aya 3B",
    "spark2_5": "Spark-X2.5 1.7B",
    "bitnet": "BitNet 2B",
    "internlm2": "InternLM 2",
    "xverse": "XVERSE",
    "pangu-embedded": "openPangu-Embedded 1B and 7B",
    "jais2": "Jais 2",
    "deci": "Llama-Nemotron",
}
# Families with a forward pass here that no build runs yet: files are refused by name.
NOT_THERE = {"muse-glimmer"}
# Files of these were compared with llama.cpp.
REAL = {
    "llama": "SmolLM2-135M-Instruct (Q4_1)",
    "gemma3": "Gemma-3-270M (Q4_K_M)",
}
