"""How hack/image makes images without a container engine: packages to folders, a Dockerfile to a folder, folders to archives."""
