"""`outlast replay`: recorded histories against this release's workflows, before it meets a running one."""
