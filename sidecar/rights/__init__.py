"""Asks the API server what this program's role allows, and says what is off without a right."""
