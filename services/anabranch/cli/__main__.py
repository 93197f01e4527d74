"""``python -m anabranch.cli``: the command ``anabranch`` where its script is not installed."""

from anabranch.cli import main

if __name__ == "__main__":
    main()
