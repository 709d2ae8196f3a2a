# l1-penalised logistic regressions of some columns of a 0/1 table on all others, at one penalty.
# usage: Rscript node_glmnet.R TABLE.csv PENALTY NODE...; a line of JSON: processor seconds and the sum of objectives.
library(glmnet)
args <- commandArgs(TRUE)
x <- as.matrix(read.csv(args[1], header = FALSE))
penalty <- as.numeric(args[2])
spent <- 0
total <- 0
for (node in as.integer(args[-(1:2)])) {
  others <- x[, -node, drop = FALSE]
  y <- x[, node]
  # The path from the largest penalty down to this one, which its authors advise in place of the one alone.
  largest <- max(abs(crossprod(others, y - mean(y)))) / nrow(x)
  path <- exp(seq(log(max(largest, penalty)), log(penalty), length.out = 10))
  start <- proc.time()
  fit <- glmnet(others, y, family = "binomial", lambda = path, standardize = FALSE)
  spent <- spent + sum((proc.time() - start)[1:2])
  beta <- fit$beta[, 10]
  eta <- as.vector(others %*% beta + fit$a0[10])
  total <- total + mean(pmax(eta, 0) + log1p(exp(-abs(eta))) - y * eta) + penalty * sum(abs(beta))
}
cat(sprintf('{"seconds": %.6f, "objective": %.12f}\n', spent, total))
