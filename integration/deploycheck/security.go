package main

import (
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

func checkSecurity(objects []object) error {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		return err
	}
	enforced := map[string]api.Level{}
	for _, o := range objects {
		if n, is := o.typed.(*corev1.Namespace); is {
			level, err := api.ParseLevel(n.Labels[api.EnforceLevelLabel])
			if err != nil {
				return fmt.Errorf("namespace %s enforces no Pod Security Standard: %w", n.Name, err)
			}
			enforced[n.Name] = level
		}
	}
	var errs []error
	for _, o := range objects {
		name, namespace, pod := podsOf(o)
		if pod == nil {
			continue
		}
		level, known := enforced[namespace]
		if !known {
			errs = append(errs, fmt.Errorf("%s: namespace %q is not defined here", name, namespace))
			continue
		}
		results := evaluator.EvaluatePod(api.LevelVersion{Level: level, Version: api.LatestVersion()}, &pod.ObjectMeta,
			&pod.Spec)
		if result := policy.AggregateCheckResults(results); !result.Allowed {
			errs = append(errs, fmt.Errorf("%s is not %s: %s", name, level, result.ForbiddenDetail()))
		}
	}
	return errors.Join(errs...)
}

func podsOf(o object) (name, namespace string, pod *corev1.PodTemplateSpec) {
	switch w := o.typed.(type) {
	case *appsv1.Deployment:
		return w.Name, w.Namespace, &w.Spec.Template
	case *appsv1.StatefulSet:
		return w.Name, w.Namespace, &w.Spec.Template
	case *batchv1.Job:
		return w.Name, w.Namespace, &w.Spec.Template
	}
	return "", "", nil
}
