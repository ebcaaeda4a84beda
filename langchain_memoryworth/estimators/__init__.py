"""The formulas, one small file each: pure functions of numbers and arrays. No framework, no database."""
