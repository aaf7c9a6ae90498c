from robustbench_dec.cli import main

main()
