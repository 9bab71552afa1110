package main

import (
	"fmt"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	podutil "k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/apps"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	validateapps "k8s.io/kubernetes/pkg/apis/apps/validation"
	"k8s.io/kubernetes/pkg/apis/autoscaling"
	_ "k8s.io/kubernetes/pkg/apis/autoscaling/install"
	validateautoscaling "k8s.io/kubernetes/pkg/apis/autoscaling/validation"
	"k8s.io/kubernetes/pkg/apis/batch"
	_ "k8s.io/kubernetes/pkg/apis/batch/install"
	validatebatch "k8s.io/kubernetes/pkg/apis/batch/validation"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	validatecore "k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/pkg/apis/networking"
	_ "k8s.io/kubernetes/pkg/apis/networking/install"
	validatenetworking "k8s.io/kubernetes/pkg/apis/networking/validation"
	"k8s.io/kubernetes/pkg/apis/policy"
	_ "k8s.io/kubernetes/pkg/apis/policy/install"
	validatepolicy "k8s.io/kubernetes/pkg/apis/policy/validation"
)

func validate(o runtime.Object) error {
	pods := podutil.GetValidationOptionsFromPodTemplate(nil, nil)
	var wrong field.ErrorList
	switch o := o.(type) {
	case *core.ConfigMap:
		wrong = validatecore.ValidateConfigMap(o)
	case *core.Namespace:
		wrong = validatecore.ValidateNamespace(o)
	case *core.Secret:
		wrong = validatecore.ValidateSecret(o)
	case *core.Service:
		if o.Spec.ClusterIP == core.ClusterIPNone { // set by the server if there is no address
			o.Spec.ClusterIPs = []string{core.ClusterIPNone}
		}
		wrong = validatecore.ValidateServiceCreate(o)
	case *core.ServiceAccount:
		wrong = validatecore.ValidateServiceAccount(o)
	case *apps.Deployment:
		wrong = validateapps.ValidateDeployment(o, pods)
	case *apps.StatefulSet:
		wrong = validateapps.ValidateStatefulSet(o, pods)
	case *autoscaling.HorizontalPodAutoscaler:
		wrong = validateautoscaling.ValidateHorizontalPodAutoscaler(o,
			validateautoscaling.HorizontalPodAutoscalerSpecValidationOptions{})
	case *batch.Job:
		selectOwn(o)
		wrong = validatebatch.ValidateJob(o,
			validatebatch.JobValidationOptions{PodValidationOptions: pods, RequirePrefixedLabels: true})
	case *networking.NetworkPolicy:
		wrong = validatenetworking.ValidateNetworkPolicy(o, validatenetworking.NetworkPolicyValidationOptions{})
	case *policy.PodDisruptionBudget:
		wrong = validatepolicy.ValidatePodDisruptionBudget(o, validatepolicy.PodDisruptionBudgetValidationOptions{})
	default:
		return fmt.Errorf("%T is not a kind that deploycheck validates; add it to validate.go", o)
	}
	return wrong.ToAggregate()
}

// selectOwn sets a job's selector like the server does.
func selectOwn(j *batch.Job) {
	const uid = "00000000-0000-0000-0000-000000000000"
	labels := map[string]string{}
	maps.Copy(labels, j.Spec.Template.Labels)
	maps.Copy(labels, map[string]string{batch.LegacyControllerUidLabel: uid, batch.ControllerUidLabel: uid,
		batch.LegacyJobNameLabel: j.Name, batch.JobNameLabel: j.Name})
	j.UID, j.Spec.Template.Labels = uid, labels
	j.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{batch.ControllerUidLabel: uid}}
}
