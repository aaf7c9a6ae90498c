from robustbench_dec.commands.app import main

main()
