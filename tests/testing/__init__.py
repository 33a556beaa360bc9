"""What tests share: small worlds, methods, texts and models."""
