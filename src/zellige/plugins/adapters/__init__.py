"""Models as other libraries expect them: lm-evaluation-harness, Hugging Face's pipelines, SGLang."""
