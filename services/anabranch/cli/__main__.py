"""``python -m anabranch.cli``: the command without its script."""

from anabranch.cli import main

if __name__ == "__main__":
    main()
