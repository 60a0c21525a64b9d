"""What people see: pure functions from model values to text, tables, pictures and JSON."""
