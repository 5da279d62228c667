"""Model families as rows of data, and the reading of Hugging Face configs into them."""
