"""One HTML file about a store: its sections and plots."""
