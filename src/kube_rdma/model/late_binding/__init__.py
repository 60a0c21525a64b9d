"""What Allocate promised, what stands for it later, and the runtime that starts the container."""
